"""Dividing the rows of a pass: nobody starves, and no row too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduler.row_budget import Wish, divide

WISHES = st.lists(
    st.one_of(
        st.integers(0, 40).map(lambda rows: Wish(draft=rows)),
        st.integers(1, 900).map(lambda rows: Wish(prompt=rows)),
    ),
    min_size=1,
    max_size=12,
)


@given(WISHES, st.integers(0, 200), st.booleans())
def test_the_budget_holds_and_everybody_has_a_row(
    wishes: list[Wish], spare: int, waiting: bool
) -> None:
    budget = len(wishes) + spare
    rows = divide(budget, wishes, waiting)
    assert len(rows) == len(wishes)
    assert sum(rows) <= budget
    for granted, wish in zip(rows, wishes, strict=True):
        assert 1 <= granted <= 1 + wish.draft + wish.prompt
    if any(granted < 1 + wish.prompt for granted, wish in zip(rows, wishes, strict=True)):
        assert sum(rows) == budget, "rows are left unused although a prompt wants them"
    if not waiting and not any(wish.prompt for wish in wishes):
        assert sum(rows) == min(budget, sum(1 + wish.draft for wish in wishes))


def test_drafts_are_cut_evenly_the_longest_first() -> None:
    assert divide(3, [Wish(draft=9)] * 3, False) == [1, 1, 1]
    assert divide(12, [Wish(draft=9)] * 3, False) == [4, 4, 4]
    assert divide(14, [Wish(draft=9), Wish(draft=1), Wish(draft=9)], False) == [6, 2, 6]
    assert divide(99, [Wish(draft=9), Wish(draft=1), Wish(draft=9)], False) == [10, 2, 10]


def test_prompts_are_fed_in_order_with_what_drafts_leave() -> None:
    assert divide(20, [Wish(prompt=9), Wish(prompt=30)], False) == [10, 10]
    assert divide(8, [Wish(prompt=30), Wish(prompt=30)], False) == [7, 1]
    assert divide(20, [Wish(prompt=99), Wish(draft=3)], False) == [16, 4]


def test_drafts_leave_a_prompt_half_of_the_rows() -> None:
    assert divide(22, [Wish(draft=40), Wish(prompt=99)], False) == [11, 11]
    assert sum(divide(21, [Wish(draft=40)], True)) == 11, "a waiting prompt counts too"
    assert divide(21, [Wish(draft=40)], False) == [21]
