"""A stream alone: what each token does to text, limits and end, in absolute terms."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from outrider.session.stream import StreamLimits, TokenStream
from outrider.text.pieces import byte_alphabet
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.errors import InvariantError
from outrider.types.sampling import SamplingParams

BAD = "\ufffd"
LETTERS = {byte: letter for letter, byte in byte_alphabet().items()}
#: Two end tokens, one that is markup and no end, and parts of an é.
END, TURN, TOOL, A, B, SPACE, FIRST, LAST = range(8)
MARKUP = ["<eos>", "<turn>", "<tool>"]
PARTS = [b"a", b"b", b" ", b"\xc3", b"\xa9"]


def make_tokenizer() -> Tokenizer:
    spelled = ["".join(LETTERS[byte] for byte in part) for part in PARTS]
    vocabulary = {piece: index for index, piece in enumerate([*MARKUP, *spelled])}
    backend = Backend(models.WordLevel(vocabulary, unk_token="<eos>"))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(word, special=True) for word in MARKUP])
    return Tokenizer(backend, "tiny", SpecialTokens(eos_ids=(END, TURN)))


TOKENIZER = make_tokenizer()


def open_stream(
    prompt: list[int] | None = None, max_model_len: int = 100, **options: Any
) -> TokenStream:
    limits = StreamLimits(frozenset({END, TURN}), max_model_len)
    return TokenStream(prompt or [A], SamplingParams(**options), TOKENIZER, limits)


def emit(stream: TokenStream, *tokens: int) -> TokenStream:
    for token in tokens:
        stream.emit(token)
    return stream


# -- where it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "max_model_len", "max_tokens", "count"),
    [
        (3, 7, None, 4),  # the context is full
        (3, 7, 9, 4),
        (3, 7, 4, 4),  # both at once
        (3, 7, 3, 3),
        (3, 7, 1, 1),
        (6, 7, None, 1),  # one position is left
    ],
)
def test_the_last_position_is_served_and_no_more(
    prompt: int, max_model_len: int, max_tokens: int | None, count: int
) -> None:
    stream = open_stream([A] * prompt, max_model_len, max_tokens=max_tokens)
    for left in range(count, 0, -1):
        assert stream.finish_reason is None
        assert stream.remaining == left
        stream.emit(B)
    assert (stream.finish_reason, stream.stop_reason) == ("length", None)
    assert stream.remaining == 0
    assert stream.output == [B] * count
    assert stream.text == "b" * count
    with pytest.raises(InvariantError, match="has ended"):
        stream.emit(B)


@pytest.mark.parametrize("token", [END, TURN])
def test_an_end_token_at_the_last_position_is_a_stop(token: int) -> None:
    stream = emit(open_stream(max_tokens=2), B, token)
    assert (stream.finish_reason, stream.stop_reason) == ("stop", None)
    assert (stream.output, stream.text, stream.remaining) == ([B, token], "b", 0)


def test_a_stop_string_at_the_last_position_is_a_stop() -> None:
    stream = emit(open_stream(max_tokens=2, stop="ab"), A, B)
    assert (stream.finish_reason, stream.stop_reason, stream.text) == ("stop", "ab", "")


def test_an_end_token_comes_before_a_stop_token() -> None:
    stream = emit(open_stream(stop_token_ids=[END, B]), END)
    assert (stream.finish_reason, stream.stop_reason) == ("stop", None)
    stream = emit(open_stream(stop_token_ids=[END, B]), A, B)
    assert (stream.finish_reason, stream.stop_reason) == ("stop", B)


def test_an_end_token_that_is_ignored_can_be_a_stop_token() -> None:
    stream = open_stream(ignore_eos=True, stop_token_ids=[TURN])
    assert stream.end_ids == {TURN}
    emit(stream, A, END, B)
    assert stream.finish_reason is None
    emit(stream, TURN)
    assert (stream.finish_reason, stream.stop_reason, stream.text) == ("stop", TURN, "ab")


def test_end_tokens_are_the_models_and_the_requests() -> None:
    assert open_stream(stop_token_ids=[B]).end_ids == {END, TURN, B}
    assert open_stream().end_ids == {END, TURN}


@pytest.mark.parametrize("min_tokens", [1, 2, 3])
def test_a_stop_string_counts_with_token_min_tokens_and_not_one_later(min_tokens: int) -> None:
    """Every token is the stop string, so that the first that counts is seen."""
    stream = open_stream(stop="b", min_tokens=min_tokens, max_tokens=9)
    emitted = 0
    while stream.finish_reason is None:
        stream.emit(B)
        emitted += 1
    assert emitted == min_tokens
    assert (stream.finish_reason, stream.stop_reason) == ("stop", "b")
    assert stream.text == "b" * (min_tokens - 1)


# -- its text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "options"),
    [
        ([END], {}),
        ([TURN], {}),
        ([END], {"skip_special_tokens": False}),
        ([TOOL], {"stop_token_ids": [TOOL]}),
        ([TOOL], {"stop_token_ids": [TOOL], "skip_special_tokens": False}),
        ([B], {"stop_token_ids": [B]}),
        ([], {"max_tokens": 2}),
    ],
)
def test_the_tail_of_a_broken_character_is_text_and_the_token_that_ends_it_is_not(
    ended: list[int], options: dict[str, Any]
) -> None:
    stream = emit(open_stream(**options), A, FIRST)
    if ended:
        assert (stream.text, stream.finish_reason) == ("a", None)
    emit(stream, *ended)
    assert stream.finish_reason is not None
    assert stream.text == "a" + BAD
    assert stream.unread == "a" + BAD


def test_the_text_of_an_end_token_is_kept_where_a_stop_strings_is() -> None:
    options = {"stop_token_ids": [B], "include_stop_str_in_output": True}
    stream = emit(open_stream(**options), A, FIRST, B)
    assert (stream.text, stream.finish_reason) == ("a" + BAD + "b", "stop")


@pytest.mark.parametrize(("way", "reason"), [("abort", "abort"), ("fail", "error")])
def test_a_stream_that_is_cut_off_shows_what_it_held_back(way: str, reason: str) -> None:
    stream = emit(open_stream(stop="bab"), A, B, A, FIRST)
    assert stream.text == "a"
    getattr(stream, way)()
    assert (stream.text, stream.finish_reason) == ("aba" + BAD, reason)
    assert (stream.stop_reason, stream.remaining) == (None, 0)


@pytest.mark.parametrize("way", ["abort", "fail"])
def test_a_stream_that_has_ended_stays_as_it_is(way: str) -> None:
    stream = emit(open_stream(), A, END)
    getattr(stream, way)()
    assert (stream.text, stream.finish_reason) == ("a", "stop")


def test_markup_is_text_only_if_it_is_shown() -> None:
    tokens = [A, TOOL, B, SPACE, TOOL]
    assert emit(open_stream(), *tokens).text == "ab "
    assert emit(open_stream(skip_special_tokens=False), *tokens).text == "a<tool>b <tool>"
    ignored = {"ignore_eos": True, "skip_special_tokens": False}
    assert emit(open_stream(**ignored), A, END, B).text == "a<eos>b"


def test_markup_breaks_a_character_only_if_it_is_shown() -> None:
    assert emit(open_stream(), FIRST, TOOL, LAST).text == "é"
    shown = emit(open_stream(skip_special_tokens=False), FIRST, TOOL, LAST)
    assert shown.text == f"{BAD}<tool>{BAD}"


def test_a_stop_string_can_be_markup_only_if_it_is_shown() -> None:
    assert emit(open_stream(stop="<tool>"), A, TOOL).finish_reason is None
    shown = emit(open_stream(stop="<tool>", skip_special_tokens=False), A, TOOL)
    assert (shown.text, shown.stop_reason) == ("a", "<tool>")


def test_readers_see_each_piece_once() -> None:
    stream = open_stream()
    seen = []
    for token in (A, FIRST, LAST, B):
        stream.emit(token)
        seen.append(stream.unread)
        assert stream.unread == seen[-1], "reading alone does not count as read"
        stream.mark_read()
        assert stream.unread == ""
    assert seen == ["a", "", "é", "b"]


# -- going back ------------------------------------------------------------------------------------


def test_a_round_that_failed_is_forgotten() -> None:
    stream = open_stream([A, B], max_tokens=6, stop="bb")
    emit(stream, A, FIRST)
    stream.mark_read()
    stream.committed = 3
    emit(stream, LAST, B, B)
    assert (stream.finish_reason, stream.stop_reason) == ("stop", "bb")
    stream.committed = 6
    stream.roll_back(4, 3)
    assert (stream.tokens, stream.output, stream.committed) == ([A, B, A, FIRST], [A, FIRST], 3)
    assert (stream.finish_reason, stream.stop_reason, stream.remaining) == (None, None, 4)
    assert (stream.text, stream.unread, stream.tip, stream.pending) == ("a", "", FIRST, 1)
    assert stream.history.emitted == 2
    assert stream.history.counts == {A: 1, FIRST: 1}
    assert stream.history.prompt == {A, B}
    emit(stream, LAST, SPACE)
    assert (stream.text, stream.unread) == ("aé ", "é ")


def test_going_back_to_where_it_stands_changes_what_is_committed_only() -> None:
    stream = emit(open_stream(), A, FIRST)
    stream.committed = 2
    stream.roll_back(3, 1)
    assert (stream.committed, stream.pending, stream.text) == (1, 2, "a")
    assert emit(stream, LAST).text == "aé"


def test_history_counts_the_output_and_knows_the_prompt() -> None:
    stream = emit(open_stream([A, B, A]), B, B, SPACE)
    assert stream.history.prompt == {A, B}
    assert stream.history.counts == {B: 2, SPACE: 1}
    assert stream.history.emitted == 3
