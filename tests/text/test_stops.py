"""Stop strings: the first one wins, wherever the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.text.stops import StopStrings
from support.work import lines_run

# Two letters make strings that overlap with themselves and with each other.
ALPHABET = st.sampled_from("aab🤗")
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=6), max_size=3).map(tuple)


def expected(text: str, stops: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    """The meaning, by brute force: the first end of any stop string, the longest ending there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    matcher = StopStrings(stops, include)
    released, hit = "", None
    for piece in pieces:
        text, hit = matcher.push(piece)
        released += text
        if hit is not None:
            break
    return released + matcher.flush(), hit


@settings(max_examples=500, deadline=None)
@given(text=st.text(ALPHABET, max_size=60), stops=STOPS, include=st.booleans())
def test_the_result_does_not_depend_on_the_pieces(
    text: str, stops: tuple[str, ...], include: bool
) -> None:
    wanted = expected(text, stops, include)
    for size in range(1, 17):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert run(pieces, stops, include) == wanted


@settings(max_examples=300, deadline=None)
@given(text=st.text(ALPHABET, max_size=40), stops=STOPS)
def test_only_what_could_become_a_stop_string_is_held(text: str, stops: tuple[str, ...]) -> None:
    matcher = StopStrings(stops, False)
    released = ""
    for end, character in enumerate(text, start=1):
        piece, hit = matcher.push(character)
        released += piece
        if hit is not None:
            break
        held = text[len(released) : end]
        longest = max(
            (
                size
                for stop in stops
                for size in range(len(stop))
                if text[:end].endswith(stop[:size])
            ),
            default=0,
        )
        assert len(held) == longest


def test_nothing_follows_a_hit() -> None:
    matcher = StopStrings(("END",), include=True)
    assert matcher.push("one EN") == ("one EN", None)
    assert matcher.push("D two END") == ("D", "END")
    assert matcher.push("three") == ("", "END")
    assert matcher.flush() == ""


def test_a_string_that_overlaps_itself_is_found() -> None:
    assert run(list("aaab"), ("aab",), False) == ("a", "aab")
    assert run(list("ababac!"), ("abac",), True) == ("ababac", "abac")
    assert run(list("aabaabaaac"), ("aabaaac",), False) == ("aab", "aabaaac")


def test_the_string_that_ends_first_wins_and_the_longest_of_those() -> None:
    assert run(["xabcdx"], ("abcd", "bc"), False) == ("xa", "bc")
    assert run(["xabcx"], ("bc", "abc", "c"), False) == ("x", "abc")
    assert run(["xabc"], ("abcd",), False) == ("xabc", None)


def test_the_gate_catches_a_search_inside_each_piece() -> None:
    text, stops = "one END two", ("END",)
    pieces = ["one E", "ND two"]
    naive = [piece.find(stops[0]) for piece in pieces]
    assert naive == [-1, -1]
    assert run(pieces, stops, False) == expected(text, stops, False)


def test_empty_strings_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(("x", ""), False)


def test_cost_per_character_does_not_depend_on_the_length_of_the_string() -> None:
    def work(stop: str) -> int:
        matcher = StopStrings((stop,), False)
        return lines_run(lambda: [matcher.push("aaaa") for _ in range(3000)])

    assert work("a" * 5000 + "b") < 2 * work("a" * 5 + "b")
