"""Draft length by worth, against curves whose best length is known."""

from __future__ import annotations

import random

from outrider.session.worth import Acceptance, CostCurve, Pace, Worth

FLAT = [(1, 1.0), (8, 1.2), (16, 1.5)]
STEEP = [(1, 1.0), (2, 2.0), (16, 16.0)]


def choose(pace: Pace, worth: Worth) -> int:
    return pace.keep(pace.acceptance.reach(8), worth) if pace.wants(8, worth) else 0


def simulate(profile: list[tuple[int, float]], draft: float, chance: float, rounds: int) -> float:
    """Speed over plain decoding when every position is accepted with ``chance``."""
    luck = random.Random(1)
    worth, pace = Worth(CostCurve(profile), max(draft, 1e-6)), Pace([0.5])
    truth = CostCurve(profile)
    time, tokens = 0.0, 0
    for _ in range(rounds):
        length = choose(pace, worth)
        accepted = 0
        while accepted < length and luck.random() < chance:
            accepted += 1
        pace.record(length, accepted)
        cost = draft if length else None
        worth.observe(1 + length, 1, cost, truth.seconds(1 + length))
        time += truth.seconds(1 + length) + (draft if length else 0.0)
        tokens += 1 + accepted
    return tokens * truth.seconds(1) / time


def test_interpolates_and_extrapolates() -> None:
    curve = CostCurve([(1, 1.0), (3, 2.0), (5, 1.9)])
    assert [curve.seconds(n) for n in (1, 2, 3, 4, 9)] == [1.0, 1.5, 2.0, 2.0, 2.0]
    assert CostCurve(STEEP).seconds(32) == 32.0


def test_follows_drift_but_not_outliers() -> None:
    curve = CostCurve(FLAT)
    curve.observe(1, 100.0)
    assert curve.seconds(1) < 1.2
    for _ in range(100):
        curve.observe(8, 2.4)
    assert abs(curve.seconds(1) - 2.0) < 0.1


def test_acceptance_learns_and_forgets() -> None:
    estimate = Acceptance([0.5])
    for _ in range(60):
        estimate.record(3, 3)
    assert estimate.conditional(2) > 0.9
    for _ in range(80):
        estimate.record(3, 0)
    assert estimate.conditional(0) < 0.2
    assert estimate.reach(3) == sorted(estimate.reach(3), reverse=True)


def test_never_much_slower_than_plain() -> None:
    for profile in (FLAT, STEEP):
        for draft in (0.0, 0.2, 1.0):
            for chance in (0.0, 0.05, 0.3, 0.7, 0.95):
                assert simulate(profile, draft, chance, 2000) > 0.97


def test_takes_the_gain_where_there_is_one() -> None:
    assert simulate(FLAT, 0.1, 0.9, 2000) > 3.0
    assert simulate(FLAT, 0.1, 0.6, 2000) > 1.5
    assert simulate(STEEP, 0.0, 0.3, 2000) > 0.98


def test_notices_that_the_text_has_changed() -> None:
    worth, pace = Worth(CostCurve(FLAT), 0.3), Pace([0.1])
    worth.observe(1, 1, 0.3, 1.0)
    chosen = []
    for turn in range(900):
        length = choose(pace, worth)
        accepted = length if turn > 300 else 0
        pace.record(length, accepted)
        chosen.append(length)
    assert sum(chosen[100:300]) < 20
    assert min(chosen[-100:]) > 4


def test_shared_passes_make_rows_dearer() -> None:
    chances = [0.6, 0.36, 0.2, 0.1, 0.05, 0.02, 0.01]
    alone, crowded = Worth(CostCurve(FLAT), 0.01), Worth(CostCurve(STEEP), 0.01)
    crowded.seats = 8
    assert alone.length(chances) >= 3
    assert crowded.length(chances) == 0
    assert alone.cut([0.9, 0.01]) == 1
