"""Estimated acceptance by position, against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.draft_length.acceptance import AcceptanceStatistics


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
def test_chances_follow_from_the_rounds_alone(prior: list[float], rounds: list[list[int]]) -> None:
    estimate = AcceptanceStatistics(prior)
    seen = [(drafted, accepted) for accepted, drafted in rounds]
    for drafted, accepted in seen:
        estimate.record(drafted, accepted)
    chances = [conditional_afresh(prior, seen, position) for position in range(10)]
    assert estimate.conditionals(10) == pytest.approx(chances)
    reach = 1.0
    for position, reached in enumerate(estimate.chances(10)):
        reach *= chances[position]
        assert reached == pytest.approx(reach)


def test_acceptance_learns_and_forgets() -> None:
    estimate = AcceptanceStatistics([0.5])
    for _ in range(60):
        estimate.record(3, 3)
    assert estimate.conditionals(3)[-1] > 0.9
    for _ in range(80):
        estimate.record(3, 0)
    assert estimate.conditionals(1)[-1] < 0.2
    assert estimate.chances(3) == sorted(estimate.chances(3), reverse=True)
