"""Draft length by worth, against curves whose best length is known."""

from __future__ import annotations

import random

from outrider.drafters.base import Proposal
from outrider.session.worth import Acceptance, Belief, CostCurve, Pace, Trust, Worth

FLAT = [(1, 1.0), (8, 1.2), (16, 1.5)]
STEEP = [(1, 1.0), (2, 2.0), (16, 16.0)]


def draft(length: int) -> Proposal:
    return Proposal([0] * length)


def choose(pace: Pace, worth: Worth) -> int:
    return pace.keep(draft(8), worth) if pace.wants(8, worth) else 0


def simulate(profile: list[tuple[int, float]], price: float, chance: float, rounds: int) -> float:
    """Speed over plain decoding when every position is accepted with ``chance``."""
    luck = random.Random(1)
    worth, pace = Worth(CostCurve(profile), max(price, 1e-6)), Pace(Belief([0.5]), 8)
    truth = CostCurve(profile)
    time, tokens = 0.0, 0
    for _ in range(rounds):
        length = choose(pace, worth)
        accepted = 0
        while accepted < length and luck.random() < chance:
            accepted += 1
        pace.record(draft(length), accepted)
        cost = price if length else None
        worth.observe(1 + length, 1, cost, truth.seconds(1 + length))
        time += truth.seconds(1 + length) + (price if length else 0.0)
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
    for _ in range(150):
        curve.observe(8, 2.4)
    assert abs(curve.seconds(8) - 2.4) < 0.1
    assert curve.seconds(1) > 1.2, "the machine became slower, not that one pass alone"


def test_a_disturbed_profile_is_corrected() -> None:
    """The plain pass was measured while the machine was busy: drafting looked free."""
    curve = CostCurve([(1, 1.9), (4, 1.9), (8, 2.0)])
    for _ in range(100):
        curve.observe(1, 1.0)
        curve.observe(8, 2.0)
    assert abs(curve.seconds(1) - 1.0) < 0.1
    assert abs(curve.seconds(8) - 2.0) < 0.1


def test_the_price_of_a_plain_pass_stays_known() -> None:
    worth, pace = Worth(CostCurve(FLAT), 0.1), Pace(Belief([0.9]), 8)
    lengths = []
    for _ in range(300):
        lengths.append(choose(pace, worth))
        pace.record(draft(lengths[-1]), lengths[-1])
    assert 1 <= lengths.count(0) <= 5


def test_acceptance_learns_and_forgets() -> None:
    estimate = Acceptance([0.5])
    for _ in range(60):
        estimate.record(3, 3)
    assert estimate.conditional(2) > 0.9
    for _ in range(80):
        estimate.record(3, 0)
    assert estimate.conditional(0) < 0.2
    assert estimate.reach(3) == sorted(estimate.reach(3), reverse=True)


def test_trust_scales_what_confidences_promise() -> None:
    luck, trust = random.Random(1), Trust()
    assert trust.chances([0.8, 0.5]) == [0.8, 0.4]
    for _ in range(2000):
        accepted = 0
        while accepted < 4 and luck.random() < 0.45:
            accepted += 1
        trust.record([0.9] * 4, accepted)
    first, second = trust.chances([0.9, 0.9])
    assert abs(first - 0.45) < 0.06
    assert abs(second - first * first) < 1e-9
    for _ in range(2000):
        trust.record([0.5] * 4, 4)
    assert trust.chances([0.9]) == [1.0]


def test_new_sessions_start_from_what_others_met() -> None:
    worth = Worth(CostCurve(FLAT), 0.1, [0.9])
    first = Pace(worth.belief(0.0), 8)
    for _ in range(60):
        choose(first, worth)
        first.record(draft(4), 0)
    assert Pace(worth.belief(0.0), 8).acceptance.conditional(0) < 0.4
    assert Pace(worth.belief(0.8), 8).acceptance.conditional(0) == 0.9, "drawn tokens are apart"


def test_copies_and_predictions_are_trusted_apart() -> None:
    worth = Worth(CostCurve(FLAT), 0.1)
    pace = Pace(worth.belief(0.0), 8)
    for _ in range(200):
        pace.record(Proposal([0] * 4, None, [0.9] * 4, copied=True), 0)
    sure = [0.9] * 4
    assert pace.keep(Proposal([0] * 4, None, sure), worth) == 4
    assert pace.keep(Proposal([0] * 4, None, sure, copied=True), worth) <= 1


def test_never_much_slower_than_plain() -> None:
    for profile in (FLAT, STEEP):
        for price in (0.0, 0.2, 1.0):
            for chance in (0.0, 0.05, 0.3, 0.7, 0.95):
                assert simulate(profile, price, chance, 2000) > 0.97


def test_takes_the_gain_where_there_is_one() -> None:
    assert simulate(FLAT, 0.1, 0.9, 2000) > 3.0
    assert simulate(FLAT, 0.1, 0.6, 2000) > 1.5
    assert simulate(STEEP, 0.0, 0.3, 2000) > 0.98


def test_notices_that_the_text_has_changed() -> None:
    worth, pace = Worth(CostCurve(FLAT), 0.3), Pace(Belief([0.1]), 8)
    worth.observe(1, 1, 0.3, 1.0)
    chosen = []
    for turn in range(900):
        length = choose(pace, worth)
        accepted = length if turn > 300 else 0
        pace.record(draft(length), accepted)
        chosen.append(length)
    assert sum(chosen[100:300]) < 20
    assert sorted(chosen[-100:])[2] > 4, "all but the plain rounds that keep prices known"


def test_shared_passes_make_rows_dearer() -> None:
    chances = [0.6, 0.36, 0.2, 0.1, 0.05, 0.02, 0.01]
    alone, crowded = Worth(CostCurve(FLAT), 0.01), Worth(CostCurve(STEEP), 0.01)
    crowded.seats = 8
    assert alone.length(chances) >= 3
    assert crowded.length(chances) == 0
    assert alone.cut([0.9, 0.01]) == 1
