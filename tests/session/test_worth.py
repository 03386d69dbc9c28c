"""Draft length by worth, against curves whose best length is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def seconds_afresh(rows: list[int], seconds: list[float], at: int) -> float:
    """Interpolated between knots of which none is below those before it."""
    floors = [max(seconds[: knot + 1]) for knot in range(len(seconds))]
    if len(rows) == 1 or at <= rows[0]:
        return floors[0]
    right = next((knot for knot in range(1, len(rows)) if rows[knot] > at), len(rows) - 1)
    share = (at - rows[right - 1]) / (rows[right] - rows[right - 1])
    return floors[right - 1] + share * (floors[right] - floors[right - 1])


@given(
    st.dictionaries(st.integers(1, 40), st.floats(0.1, 9.0), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 60), st.floats(0.1, 9.0)), max_size=6),
)
def test_seconds_follow_from_the_knots_alone(
    profile: dict[int, float], passes: list[tuple[int, float]]
) -> None:
    """Whatever was looked up before an observation is forgotten by it."""
    rows, seconds = sorted(profile), [profile[rows] for rows in sorted(profile)]
    curve = CostCurve(list(profile.items()))
    for ran, took in [*passes, (1, 1.0)]:
        assert curve.seconds(ran) == pytest.approx(seconds_afresh(rows, seconds, ran))
        assert [curve.seconds(n) for n in range(1, 60)] == pytest.approx(
            [seconds_afresh(rows, seconds, n) for n in range(1, 60)]
        )
        known = seconds_afresh(rows, seconds, ran)
        error = min(max(took / known, 0.5), 2.0) - 1.0
        right = next((knot for knot in range(len(rows)) if rows[knot] > ran), len(rows) - 1)
        left = max(right - 1, 0)
        beyond = ran > rows[0] and right > left
        share = min((ran - rows[left]) / (rows[right] - rows[left]), 1.0) if beyond else 0.0
        for knot in range(len(seconds)):
            near = 1.0 - share if knot == left else share if knot == left + 1 else 0.0
            seconds[knot] *= 1.0 + (0.02 + 0.08 * near) * error
        curve.observe(ran, took)


def conditional_afresh(prior: list[float], rounds: list[tuple[int, int]], position: int) -> float:
    """The estimate by its definition: from the position before, and this one's own record."""
    tried = kept = 0.0
    for drafted, accepted in rounds:
        if position < min(accepted + 1, drafted):
            fade = min(1.0, 40.0 / (tried + 1.0))
            tried, kept = tried * fade + 1.0, kept * fade + float(position < accepted)
    deepest = max((min(accepted + 1, drafted) for drafted, accepted in rounds), default=0)
    expected = prior[min(position, len(prior) - 1)]
    if 0 < position <= deepest:
        expected = max(expected, 0.9 * conditional_afresh(prior, rounds, position - 1))
    return (kept + 4.0 * expected) / (tried + 4.0)


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted), max_size=60),
)
def test_reach_follows_from_the_rounds_alone(prior: list[float], rounds: list[list[int]]) -> None:
    estimate = Acceptance(prior)
    seen = [(drafted, accepted) for accepted, drafted in rounds]
    for drafted, accepted in seen:
        estimate.record(drafted, accepted)
    chances = [conditional_afresh(prior, seen, position) for position in range(10)]
    assert estimate.prior(10) == pytest.approx(chances)
    assert [estimate.conditional(position) for position in range(10)] == pytest.approx(chances)
    reach = 1.0
    for position, reached in enumerate(estimate.reach(10)):
        reach *= chances[position]
        assert reached == pytest.approx(reach)


def ask(pace: Pace, worth: Worth, hold: int, rounds: int) -> list[int]:
    """What a pace asks for when up to ``hold`` tokens of each draft are accepted."""
    asked = []
    for _ in range(rounds):
        if pace.wants(32, worth):
            asked.append(pace.asked)
            pace.record(draft(min(pace.asked, 7)), min(hold, pace.asked, 7))
    return asked


def test_asks_for_what_the_text_accepts() -> None:
    worth = Worth(CostCurve(FLAT), 0.1, [0.9])
    pace = Pace(worth.belief(0.8), 32)
    assert ask(pace, worth, 1, 1) == [8]
    hard = ask(pace, worth, 1, 400)
    assert set(hard[-100:]) == {1, 2}
    assert set(ask(Pace(worth.belief(0.8), 32), worth, 1, 50)) <= {1, 2, 3}, "others' texts count"
    easy = ask(pace, worth, 7, 30)
    assert easy[8:] == [8 if tokens > 7 else 7 for tokens in easy[8:]], "grows at once"
    assert ask(Pace(worth.belief(0.0), 32), worth, 7, 1) == [8], "drawn tokens are apart"


def test_copies_do_not_tell_what_to_ask_for() -> None:
    worth = Worth(CostCurve(FLAT), 0.1, [0.9])
    pace = Pace(worth.belief(0.0), 32)
    asked = []
    for _ in range(200):
        if pace.wants(32, worth):
            asked.append(pace.asked)
            pace.record(Proposal([0] * 20, None, [0.9] * 20, copied=True), 20)
    assert set(asked) == {8}


def test_a_short_draft_that_held_says_nothing() -> None:
    """The end of the stream cut it."""
    worth = Worth(CostCurve(FLAT), 0.1, [0.9])
    pace = Pace(worth.belief(0.0), 32)
    for _ in range(100):
        pace.wants(3, worth)
        assert pace.asked == 3
        pace.record(draft(3), 3)
    assert ask(pace, worth, 7, 1) == [8]


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
