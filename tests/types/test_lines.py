"""Values and errors in messages are short, and one line."""

from __future__ import annotations

import pytest

from outrider.types.lines import SHOWN, one_line, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("two\nlines", r"'two\nlines'"),
        ("x" * 100, "'" + "x" * (SHOWN - 4) + "..."),
        (10**5000, "an integer of 16610 bits"),
        ([10**5000], "it"),
    ],
    ids=["short", "lines", "long", "integer", "list"],
)
def test_a_value_is_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_value_that_writes_lines_of_its_own() -> None:
    class Tall:
        def __repr__(self) -> str:
            return "Tall(\n    1,\n)"

    assert shown(Tall()) == "Tall( 1, )"


def test_an_error_is_one_line_and_never_silent() -> None:
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(MemoryError()) == "MemoryError"
