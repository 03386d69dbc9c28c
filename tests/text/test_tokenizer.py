"""Encoding, special tokens, and what is added around a text."""

from __future__ import annotations

import pytest
from tiny_tokenizers import byte_fallback, byte_level, words
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.errors import ModelError, RequestError

CHATML = (
    "{{ bos_token if bos_token else '' }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "Hello 🤗"}]


def with_template(backend: Backend, **named: str) -> Tokenizer:
    return Tokenizer(backend, "tiny", SpecialTokens(named=named, chat_template=CHATML))


def test_special_markup_inside_a_text_is_recognised() -> None:
    tokenizer = Tokenizer(byte_level(), "tiny", SpecialTokens())
    assert tokenizer.encode("<|im_start|>x<|im_end|>", add_special=False)[::2] == [1, 2]
    assert tokenizer.special_ids == {0, 1, 2}


def test_begin_token_is_added_only_when_asked_and_only_if_the_tokenizer_has_one() -> None:
    plain = Tokenizer(byte_level(), "tiny", SpecialTokens())
    begun = Tokenizer(byte_level(bos=True), "tiny", SpecialTokens(bos_id=0))
    ids = plain.encode("fox", add_special=False)
    assert plain.encode("fox", add_special=True) == ids
    assert begun.encode("fox", add_special=False) == ids
    assert begun.encode("fox", add_special=True) == [0, *ids]


@pytest.mark.parametrize("bos", [False, True])
def test_chat_prompts_have_one_begin_token_at_most(bos: bool) -> None:
    named = {"bos_token": "<|endoftext|>"} if bos else {}
    tokenizer = with_template(byte_level(bos=bos), **named)
    ids = tokenizer.encode_chat(MESSAGES)
    assert ids[: 1 + bos] == [0, 1][1 - bos :]
    assert ids.count(0) == bos
    # The gate: adding specials to the rendered prompt would double the token.
    assert tokenizer.encode(tokenizer.render_chat(MESSAGES), add_special=True).count(0) == 2 * bos


def test_chat_variables_reach_the_template() -> None:
    tokenizer = with_template(byte_level())
    assert tokenizer.render_chat(MESSAGES).endswith("assistant\n")
    assert tokenizer.render_chat(MESSAGES, add_generation_prompt=False).endswith("<|im_end|>\n")


def test_messages_are_checked_before_the_template_sees_them() -> None:
    tokenizer = with_template(byte_level())
    plain = tokenizer.render_chat([{"role": "user", "content": "a\nb"}])
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert tokenizer.render_chat([{"role": "user", "content": parts}]) == plain
    for wrong in (None, 5, [{"type": "image_url"}]):
        with pytest.raises(RequestError, match=r"^messages\[0\]\.content"):
            tokenizer.encode_chat([{"role": "user", "content": wrong}])


def test_missing_template_is_one_clear_line() -> None:
    tokenizer = Tokenizer(byte_level(), "some/file", SpecialTokens())
    assert not tokenizer.has_template
    with pytest.raises(RequestError, match=r"^messages: some/file has no chat template, .*--raw"):
        tokenizer.encode_chat(MESSAGES)


def test_truncation_and_padding_are_switched_off() -> None:
    backend = Backend.from_str(byte_level().to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=8)
    tokenizer = Tokenizer(backend, "tiny", SpecialTokens())
    assert len(tokenizer.encode("x", add_special=False)) == 1
    assert len(tokenizer.encode("a b c d e f g", add_special=False)) > 8


def test_round_trip_and_single_tokens() -> None:
    for backend in (byte_level(), byte_fallback()):
        tokenizer = Tokenizer(backend, "tiny", SpecialTokens())
        text = "The fox 🤗 日本 größe  x"
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.decode(ids, skip_special=True) == text
        assert max(ids) < tokenizer.vocab_size
    assert tokenizer.token_text(tokenizer.vocab_size + 5) == ""
    assert tokenizer.token(tokenizer.vocab_size + 5) is None


def test_vocabulary_size_covers_added_tokens_beyond_the_model() -> None:
    tokenizer = Tokenizer(byte_level(), "tiny", SpecialTokens())
    assert tokenizer.token(tokenizer.vocab_size - 1) == "größe "
    assert tokenizer.token(tokenizer.vocab_size) is None
    assert Tokenizer(words(), "tiny", SpecialTokens()).vocab_size == 50


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.WordPiece(),
        decoders.Sequence([decoders.Fuse(), decoders.ByteFallback()]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
        decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse()]),
    ],
)
def test_unknown_decoders_are_refused_by_name(decoder: decoders.Decoder) -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoder
    with pytest.raises(ModelError, match=r"^tiny: tokenizer decoder .*type.* is not supported"):
        Tokenizer(backend, "tiny", SpecialTokens())


def test_the_text_of_a_token_after_others() -> None:
    """What a decoder leaves out at the beginning of a text belongs to a token further on."""
    backend = Backend(models.WordLevel({"\u2581two": 0, "two": 1, "!": 2}, unk_token="!"))
    backend.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(backend, "tiny", SpecialTokens())
    assert tokenizer.token_text(0) == "two"
    assert [tokenizer.token_text(token, [2]) for token in (0, 1, 2)] == [" two", "two", "!"]
