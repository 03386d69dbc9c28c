"""What a pass is estimated to cost, against curves whose values are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.draft_length.cost_curve import CostCurve

FLAT = [(1, 1.0), (8, 1.2), (16, 1.5)]
STEEP = [(1, 1.0), (2, 2.0), (16, 16.0)]


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
