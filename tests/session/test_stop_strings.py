"""Where a stop string ends an output: by the token that completes it, wherever it begins."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from outrider.config.engine import EngineConfig
from outrider.session.stream import StreamLimits, TokenStream
from outrider.text.pieces import byte_alphabet
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, oracle
from support.chain import chain, chain_target
from support.run import serve

EOS = "<eos>"
BAD = "\ufffd"
LETTERS = {byte: letter for letter, byte in byte_alphabet().items()}
WORDS = ["one ", "E", "N", "D", " two", " E", "ND", " three", "x", "END!"]
#: Every way to cut a text of two letters into tokens of one to three.
CUTS = ["".join(letters) for size in (1, 2, 3) for letters in product("ab", repeat=size)]
HALVES = [b"\xc3", b"\xa9", b"\xf0\x9f", b"\xa4\x97"]


def make_tokenizer() -> Tokenizer:
    """Byte-level words and parts of characters."""
    texts = [text.encode() for text in (*WORDS, *CUTS)] + HALVES
    pieces = [EOS, *("".join(LETTERS[byte] for byte in text) for text in texts)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    backend = Backend(models.WordLevel(vocabulary, unk_token=EOS))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(EOS, special=True)])
    return Tokenizer(backend, "tiny", SpecialTokens(eos_ids=(0,)))


TOKENIZER = make_tokenizer()
FIRST_CUT = 1 + len(WORDS)


def token(text: str | bytes) -> int:
    if text == EOS:
        return 0
    if isinstance(text, bytes):
        return FIRST_CUT + len(CUTS) + HALVES.index(text)
    return 1 + WORDS.index(text) if text in WORDS else FIRST_CUT + CUTS.index(text)


def play(tokens: list[int], **options: Any) -> tuple[TokenStream, list[str]]:
    """Emit tokens until the stream ends; also return what each of them released."""
    params = SamplingParams(**options)
    limits = StreamLimits(frozenset({0}), 1000)
    stream = TokenStream([token("x")], params, TOKENIZER, limits)
    released = []
    for one in tokens:
        stream.emit(one)
        released.append(stream.unread)
        stream.mark_read()
        if stream.finish_reason is not None:
            break
    assert "".join(released) == stream.text
    return stream, released


def outcome(stream: TokenStream) -> tuple[int, str, str | None, int | str | None]:
    return len(stream.output), stream.text, stream.finish_reason, stream.stop_reason


SPEECH = ["one ", "E", "N", "D", " two", " E", "ND", " three", EOS]
#: First token counts as number one. The first END is completed by token 4, the second by token 7.
BY_MIN_TOKENS = [
    (0, (4, "one ", "stop", "END")),
    (1, (4, "one ", "stop", "END")),  # begins after
    (2, (4, "one ", "stop", "END")),  # begins with the last of min_tokens
    (3, (4, "one ", "stop", "END")),  # begins before, ends after
    (4, (4, "one ", "stop", "END")),  # the first is complete with token number min_tokens
    (5, (7, "one END two ", "stop", "END")),
    (6, (7, "one END two ", "stop", "END")),
    (7, (7, "one END two ", "stop", "END")),
    (8, (9, "one END two END three", "stop", None)),
]


@pytest.mark.parametrize(("min_tokens", "wanted"), BY_MIN_TOKENS)
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_counts_once_min_tokens_are_there(
    min_tokens: int, wanted: tuple[int, str, str, str | None], include: bool
) -> None:
    stream, _ = play(
        [token(word) for word in SPEECH],
        stop="END",
        min_tokens=min_tokens,
        include_stop_str_in_output=include,
    )
    count, text, reason, stop = wanted
    shown = text + "END" if include and stop else text
    assert outcome(stream) == (count, shown, reason, stop)


@pytest.mark.parametrize("drafting", [False, True])
@pytest.mark.parametrize(("min_tokens", "wanted"), BY_MIN_TOKENS)
def test_the_engine_ends_there_however_many_tokens_a_round_decides(
    min_tokens: int, wanted: tuple[int, str, str, str | None], drafting: bool
) -> None:
    ids = [token("x"), *(token(word) for word in SPEECH)]
    target = chain_target(TOKENIZER, chain(ids))
    drafter = Scripted("right", oracle([ids])) if drafting else None
    params = SamplingParams(
        temperature=0, stop="END", min_tokens=min_tokens, max_tokens=20, logprobs=0
    )
    config = EngineConfig(max_num_seqs=2, draft_length=8)
    output = serve(target, drafter, [(ids[:1], params)], config=config)[0]
    completion = output.outputs[0]
    count, text, reason, stop = wanted
    assert completion.token_ids == ids[1 : 1 + count]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == (
        text,
        reason,
        stop,
    )
    assert [entry.token_id for entry in completion.logprobs or []] == ids[1 : 1 + count]
    if drafting:
        assert output.metrics.speculation.accepted > 0


@pytest.mark.parametrize(
    ("tokens", "stop", "min_tokens", "wanted"),
    [
        # An occurrence that does not count overlaps with one that does.
        (["a", "a", "a", "b"], "aa", 2, (2, "", "stop", "aa")),
        (["a", "a", "a", "b"], "aa", 3, (3, "a", "stop", "aa")),
        (["a", "a", "a", "b"], "aa", 4, (5, "aaab", "stop", None)),
        (["ab", "ab", "ab"], "abab", 3, (3, "ab", "stop", "abab")),
        (["aab", "aab", "a"], "aba", 3, (3, "aaba", "stop", "aba")),
        (["aab", "aab", "aab"], "baa", 2, (2, "aa", "stop", "baa")),
        # Another one ends later and begins in the same text.
        (["one ", "E", "N", "D", " two"], ["END", "ND t"], 5, (5, "one E", "stop", "ND t")),
        (["one ", "E", "N", "D", " two"], ["END", "ND t"], 4, (4, "one ", "stop", "END")),
        # Of those that end with one character, the longest.
        (["one ", "E", "N", "D"], ["D", "ND", "END"], 4, (4, "one ", "stop", "END")),
        # Inside one token: what follows in it is not output.
        (["one ", "END!"], "END", 2, (2, "one ", "stop", "END")),
        (["one ", "END!"], "END", 3, (3, "one END!", "stop", None)),
        # A token of min_tokens holds one whole; the next completes another.
        (["END!", "E", "ND"], "END", 2, (3, "END!", "stop", "END")),
        # A character that is complete with token number min_tokens only.
        (["x", b"\xc3", b"\xa9"], "é", 3, (3, "x", "stop", "é")),
        (["x", b"\xc3", b"\xa9"], "é", 4, (4, "xé", "stop", None)),
        (["x", b"\xc3", b"\xa9"], "xé", 2, (3, "", "stop", "xé")),
    ],
)
def test_overlaps_and_pieces(
    tokens: list[str | bytes],
    stop: str | list[str],
    min_tokens: int,
    wanted: tuple[int, str, str, str | None],
) -> None:
    stream, _ = play([*map(token, tokens), 0], stop=stop, min_tokens=min_tokens)
    assert outcome(stream) == wanted


@pytest.mark.parametrize(
    ("tokens", "options", "wanted"),
    [
        # The rest of an unfinished character is text of the token that ends the stream.
        (["x", b"\xc3", EOS], {}, (3, "x", "stop", BAD)),
        (["x", b"\xc3", EOS], {"min_tokens": 3}, (3, "x", "stop", BAD)),
        (["x", b"\xc3"], {"max_tokens": 2}, (2, "x", "stop", BAD)),
        (["x", b"\xc3"], {"max_tokens": 2, "min_tokens": 2}, (2, "x", "stop", BAD)),
        (["x", b"\xc3", "one "], {"stop_token_ids": [token("one ")]}, (3, "x", "stop", BAD)),
        (["x", b"\xc3", "one "], {"min_tokens": 3}, (3, "x", "stop", BAD)),
        (["x", b"\xc3", "one ", EOS], {"min_tokens": 4}, (4, f"x{BAD}one ", "stop", None)),
    ],
)
def test_the_rest_of_a_character(
    tokens: list[str | bytes],
    options: dict[str, Any],
    wanted: tuple[int, str, str, str | None],
) -> None:
    stream, _ = play([token(one) for one in tokens], stop=BAD, **options)
    assert outcome(stream) == wanted


def test_a_stop_string_that_is_left_out_is_never_released() -> None:
    tokens = [token(word) for word in ["one ", "E", "N", "D"]]
    assert play(tokens, stop="END", min_tokens=3)[1] == ["one ", "", "", ""]
    assert play(tokens, stop="END!", min_tokens=3)[1] == ["one ", "", "", ""]
    kept = play(tokens, stop="END", min_tokens=3, include_stop_str_in_output=True)
    assert kept[1] == ["one ", "E", "N", "D"]
    # What was held back for a stop string that does not come is released at the end.
    assert play([*tokens, 0], stop="END!", min_tokens=3)[1] == ["one ", "", "", "", "END"]


def expected(
    tokens: list[int], stops: tuple[str, ...], min_tokens: int, include: bool
) -> tuple[int, str, str | None, str | None]:
    """The rule by brute force, over the text up to each character."""
    text, done = "", ""
    for number, one in enumerate(tokens, start=1):
        for letter in TOKENIZER.token_text(one):
            text += letter
            found = [stop for stop in stops if text.endswith(stop)]
            if found and number >= min_tokens:
                stop = max(found, key=len)
                return number, text if include else text[: -len(stop)], "stop", stop
        done = text
    return len(tokens), done, "length", None


@settings(max_examples=600, deadline=None)
@given(
    cuts=st.lists(st.sampled_from(CUTS), min_size=1, max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple),
    data=st.data(),
    include=st.booleans(),
)
def test_the_rule_holds_for_any_text_and_any_cut(
    cuts: list[str], stops: tuple[str, ...], data: st.DataObject, include: bool
) -> None:
    tokens = [token(cut) for cut in cuts]
    min_tokens = data.draw(st.integers(0, len(tokens)))
    stream, _ = play(
        tokens,
        stop=stops,
        min_tokens=min_tokens,
        max_tokens=len(tokens),
        include_stop_str_in_output=include,
    )
    assert outcome(stream) == expected(tokens, stops, min_tokens, include)
