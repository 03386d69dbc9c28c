"""Prices that are measured before the first round, in simulated time."""

from __future__ import annotations

import pytest

from outrider.caches.pool import PagePool
from outrider.draft_length.goodput import Goodput
from outrider.engine.pricing import draft_seconds, measured_goodput
from outrider.runner.runner import Runner
from support.timing import FakeClock, TimedDrafter, TimedKernels
from support.tiny import TINY, tiny_model


def timed(clock: FakeClock, warm_up: float = 8.0) -> TimedDrafter:
    """A drafter whose first draft takes longer than all later ones."""
    waits = iter([warm_up])

    def guess(known: list[int], length: int) -> list[int]:
        assert len(set(known)) == len(known), "a copy would be found at once"
        clock.advance(next(waits, 0.0))
        return [1] * length

    return TimedDrafter(clock, guess, 0.5, observing=0.25)


def measured(clock: FakeClock, pass_seconds: float, longest: int) -> tuple[Goodput, TimedKernels]:
    kernels = TimedKernels(clock, lambda rows: pass_seconds * (1.0 + rows / 16))
    model = tiny_model(TINY, kernels)
    pool = PagePool(model.allocate(8))
    runner = Runner(model, pool.store, (), clock)
    goodput = measured_goodput(runner, timed(clock), pool, longest, clock)
    assert pool.num_used == 0
    return goodput, kernels


def test_passes_and_drafts_are_priced_without_their_warm_up() -> None:
    goodput, kernels = measured(FakeClock(), 2.0**-7, 200)
    assert [goodput.curve.seconds(rows) for rows in (1, 2, 4, 8, 16)] == [
        2.0**-7 * (1.0 + rows / 16) for rows in (1, 2, 4, 8, 16)
    ]
    assert kernels.passes[:4] == [1, 1, 1, 1]
    assert goodput.draft_seconds == 0.5 + 0.25


def test_a_slow_target_is_measured_at_two_row_counts() -> None:
    goodput, kernels = measured(FakeClock(), 1.0, 200)
    assert sorted(set(kernels.passes[:-1])) == [1, 2]
    assert goodput.curve.seconds(3) == pytest.approx(1.0 + 3 / 16), "the slope goes on"


def test_where_there_is_no_room_for_a_draft_it_is_free() -> None:
    clock = FakeClock()
    drafter = timed(clock)
    assert draft_seconds(drafter, None, 3, clock) == 0.0
    assert drafter.drafts == 0
    assert draft_seconds(drafter, None, 4, clock) == 0.75


def test_a_drafter_that_fails_is_free() -> None:
    clock = FakeClock()

    def crash(known: list[int], length: int) -> list[int]:
        raise RuntimeError("planted")

    assert draft_seconds(TimedDrafter(clock, crash, 0.5), None, 99, clock) == 0.0
