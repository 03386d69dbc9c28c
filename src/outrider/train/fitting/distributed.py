"""Processes that train one network together, each on its own GPU and its own rows."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Peers:
    """The processes of a run; a process alone by default.

    Attributes:
        rank: number of this process; 0 keeps the clock, the log and the state.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes what the run leaves."""
        return self.rank == 0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace float tensors by their means over all processes."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        torch.distributed.all_reduce(flat)
        flat /= self.count
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def agree(self, value: float, device: torch.device) -> float:
        """Process 0's value, which every process must ask for."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        torch.distributed.broadcast(shared, 0)
        return float(shared)

    def wait(self) -> None:
        """Wait until every process has come here."""
        if self.count > 1:
            torch.distributed.barrier()

    def leave(self) -> None:
        """Part from the other processes; captured steps must be out of use."""
        if self.count > 1:
            # Graphs that hold a collective keep its communicator from closing.
            gc.collect()
            torch.distributed.destroy_process_group()


#: No other processes.
ALONE = Peers()


def join_peers() -> Peers:
    """Join the processes that ``python -m torch.distributed.run`` started; else stay alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return ALONE
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    return Peers(torch.distributed.get_rank(), count)
