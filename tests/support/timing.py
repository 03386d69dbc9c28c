"""Time that only passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from outrider.draft_length.cost_curve import CostCurve
from outrider.draft_length.goodput import Goodput
from outrider.kernels.reference import ReferenceKernels
from support.adversaries import Guesser, Scripted


class FakeClock:
    """A clock that stands still unless it is advanced."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class TimedKernels(ReferenceKernels):
    """A target whose pass of so many rows takes what a function says."""

    def __init__(self, clock: FakeClock, cost: Callable[[int], float]) -> None:
        super().__init__()
        self.clock, self.cost = clock, cost
        self.passes: list[int] = []

    def run_layers(self, stack: Any, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor | None]:
        self.passes.append(len(x))
        self.clock.advance(self.cost(len(x)))
        return super().run_layers(stack, x, *rest)


class TimedDrafter(Scripted):
    """Every draft takes ``price`` seconds, and observing a batch ``observing``."""

    def __init__(
        self, clock: FakeClock, guess: Guesser, price: float, observing: float = 0.0
    ) -> None:
        def timed(known: list[int], length: int) -> object:
            clock.advance(self.price)
            self.drafts += 1
            return guess(known, length)

        super().__init__("timed", timed)
        self.price = price
        self.drafts = 0
        self._clock, self._observing = clock, observing

    def observe(self, states: Sequence[Any], rows: Sequence[Any]) -> None:
        self._clock.advance(self._observing)
        super().observe(states, rows)


class NotedGoodput(Goodput):
    """Notes the rounds that it was told of: rows, sessions, seconds of drafting and of the pass."""

    def __init__(self, profile: Sequence[tuple[int, float]], price: float) -> None:
        super().__init__(CostCurve(profile), price)
        self.noted: list[tuple[int, int, float | None, float]] = []

    def observe(
        self, rows: int, sessions: int, draft_seconds: float | None, seconds: float
    ) -> None:
        self.noted.append((rows, sessions, draft_seconds, seconds))
        super().observe(rows, sessions, draft_seconds, seconds)
