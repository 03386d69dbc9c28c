"""Pieces of text: whole characters, nothing lost, and together the text of all tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import TEXTS, byte_fallback, byte_level, metaspace, words
from tokenizers import Tokenizer as Backend

from outrider.text.detokenizer import Detokenizer
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from support.work import lines_run

KINDS = {
    "byte-level": byte_level,
    "byte-fallback": byte_fallback,
    "metaspace": metaspace,
    "words": words,
}


def wrap(backend: Backend) -> Tokenizer:
    return Tokenizer(backend, "tiny", SpecialTokens())


def pieces(tokenizer: Tokenizer, ids: list[int], skip: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip)
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_pieces_joined_equal_the_whole(kind: str, data: st.DataObject) -> None:
    tokenizer = wrap(KINDS[kind]())
    # Small ids are markup and single bytes: the hard cases.
    small = st.integers(0, min(270, tokenizer.vocab_size + 3))
    token = st.one_of(small, st.integers(0, tokenizer.vocab_size + 3))
    ids = data.draw(st.lists(token, max_size=40))
    skip = data.draw(st.booleans())
    assert "".join(pieces(tokenizer, ids, skip)) == tokenizer.decode(ids, skip_special=skip)


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=30))
def test_characters_are_never_broken(kind: str, text: str) -> None:
    tokenizer = wrap(KINDS[kind]())
    ids = tokenizer.encode(text, add_special=False)
    expected = tokenizer.decode(ids, skip_special=False)
    joined = ""
    for piece in pieces(tokenizer, ids, False):
        joined += piece
        assert expected.startswith(joined)
        if "\ufffd" not in expected:
            assert "\ufffd" not in piece
    assert joined == expected


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_plain_text_comes_back(kind: str, text: str) -> None:
    tokenizer = wrap(KINDS[kind]())
    ids = tokenizer.encode(text, add_special=False)
    assert "".join(pieces(tokenizer, ids, False)) == text


def test_text_is_released_as_soon_as_it_is_certain() -> None:
    tokenizer = wrap(byte_level())
    ids = tokenizer.encode("a🤗b", add_special=False)
    assert pieces(tokenizer, ids, False)[-1] == ""
    truncated = tokenizer.encode("🤗", add_special=False)[:-1]
    assert len(truncated) >= 1
    assert pieces(tokenizer, truncated, False) == [*[""] * len(truncated), "\ufffd"]


def test_a_character_spelled_in_bytes_is_released_with_its_last_byte() -> None:
    tokenizer = wrap(byte_fallback())
    ids = [byte + 3 for byte in "🤗".encode()]
    assert pieces(tokenizer, ids, False) == ["", "", "", "🤗", ""]
    assert pieces(tokenizer, [*ids, 0xFF + 3], False) == ["", "", "", "🤗", "\ufffd", ""]


def test_skipped_tokens_do_not_cut_a_character() -> None:
    tokenizer = wrap(byte_level())
    ids = tokenizer.encode("🤗", add_special=False)
    assert len(ids) > 1
    mixed = [ids[0], 2, *ids[1:]]
    assert "".join(pieces(tokenizer, mixed, True)) == "🤗"
    shown = byte_level().decode(mixed, skip_special_tokens=False)
    assert "".join(pieces(tokenizer, mixed, False)) == shown
    assert shown.startswith("\ufffd<|im_end|>\ufffd")


def test_the_gate_catches_a_decoder_that_forgets_the_open_character() -> None:
    tokenizer = wrap(byte_level())
    ids = tokenizer.encode(TEXTS[3], add_special=False)
    alone = "".join(tokenizer.decode([token], skip_special=False) for token in ids)
    assert alone != tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
def test_cost_per_token_does_not_grow(kind: str) -> None:
    tokenizer = wrap(KINDS[kind]())
    # Bytes that never complete a character are the worst case for a decoder that looks back.
    worst = {"byte-level": tokenizer.encode("🤗", add_special=False)[0], "byte-fallback": 0xF0 + 3}

    def work(count: int) -> int:
        detokenizer = Detokenizer(tokenizer, False)

        def push() -> None:
            for _ in range(count):
                detokenizer.push(worst[kind])
            detokenizer.finish()

        return lines_run(push)

    assert work(6400) < 17 * work(400)


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
def test_each_token_is_looked_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = wrap(KINDS[kind]())
    ids = tokenizer.encode(TEXTS[3], add_special=False)
    asked: list[int] = []
    honest = Tokenizer.token

    def token(self: Tokenizer, token_id: int) -> str | None:
        asked.append(token_id)
        return honest(self, token_id)

    monkeypatch.setattr(Tokenizer, "token", token)
    monkeypatch.setattr(Tokenizer, "decode", lambda *_, **__: pytest.fail("decoded a whole list"))
    detokenizer = Detokenizer(tokenizer, False)
    text = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert text.strip() == TEXTS[3].strip()
    assert asked == ids
