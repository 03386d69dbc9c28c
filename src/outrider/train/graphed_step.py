"""A step that a GPU repeats without the host: captured once into a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class GraphedStep:
    """A function of one integer, captured into one CUDA graph for each value on a GPU.

    The function must read and write static tensors only. Random draws differ at every replay.
    """

    def __init__(self, function: Callable[[int], None], capture: bool) -> None:
        self._function = function
        self._capture = capture
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def prepare(self, value: int) -> None:
        """Capture the graph of a value. The function runs several times: reset state after."""
        if not self._capture or value in self._graphs:
            return
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._function(value)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Threads that watch over several processes may touch the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._function(value)
        self._pool = graph.pool()
        self._graphs[value] = graph

    def __call__(self, value: int) -> None:
        """Run the function once."""
        if self._capture:
            self._graphs[value].replay()
        else:
            self._function(value)
