"""The text of an output is the text of prompt and output less the text of the prompt."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from outrider.text.detokenizer import Detokenizer
from outrider.text.pieces import byte_alphabet
from outrider.text.tokenizer import SpecialTokens, Tokenizer

SPACE = "\u2581"
BAD = "\ufffd"
LETTERS = {byte: letter for letter, byte in byte_alphabet().items()}


def spelled(text: str) -> str:
    """A text in the alphabet of byte-level vocabularies."""
    return "".join(LETTERS[byte] for byte in text.encode())


#: Markup, spaces at every place, an empty token, and characters of two and of four bytes.
WORDS = ["<s>", "</s>", "", SPACE, SPACE * 2, SPACE + "a", "b", f"c{SPACE}d", "é", "🤗", BAD]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
#: Bytes that begin, continue and break characters, and one that is a character. U+FFFD itself
#: cannot be spelled with them: text that shows it is broken.
HARD = [0x0A, 0x20, 0x80, 0x9F, 0xA4, 0x97, 0xC3, 0xA9, 0xE5, 0x8F, 0xAB, 0xF0, 0xF0, 0x9F, 0xFF]

_REPLACE = decoders.Replace(SPACE, " ")
LAYOUTS = {
    "byte-level": decoders.ByteLevel(),
    "metaspace always": decoders.Metaspace(prepend_scheme="always"),
    "metaspace first": decoders.Metaspace(prepend_scheme="first"),
    "metaspace never": decoders.Metaspace(prepend_scheme="never"),
    "llama": decoders.Sequence(
        [_REPLACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "strip two": decoders.Sequence(
        [_REPLACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 2, 0)]
    ),
    "strip five": decoders.Sequence([_REPLACE, decoders.Fuse(), decoders.Strip(" ", 5, 0)]),
    "gemma": decoders.Sequence([_REPLACE, decoders.ByteFallback(), decoders.Fuse()]),
    "no bytes": decoders.Sequence([_REPLACE, decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    "no decoder": None,
}


@lru_cache
def layout(name: str) -> Tokenizer:
    """Words, then the bytes, in the spelling of the layout; ids 0 and 1 are special."""
    words = [*WORDS[:2], *map(spelled, WORDS[2:])] if name == "byte-level" else WORDS
    raw = [LETTERS[byte] for byte in range(256)] if name == "byte-level" else BYTES
    vocabulary: dict[str, int] = {}
    for index, token in enumerate([*words, *raw]):
        vocabulary.setdefault(token, index)
    backend = Backend(models.WordLevel(vocabulary, unk_token="<s>"))
    if LAYOUTS[name] is not None:
        backend.decoder = LAYOUTS[name]
    backend.add_special_tokens([AddedToken(word, special=True) for word in WORDS[:2]])
    return Tokenizer(backend, name, SpecialTokens())


def word(text: str) -> int:
    return WORDS.index(text)


def raw(spelling: bytes | str) -> list[int]:
    """Ids of the byte tokens that spell something."""
    data = spelling.encode() if isinstance(spelling, str) else spelling
    return [len(WORDS) + byte for byte in data]


def library(name: str, ids: list[int], skip: bool) -> str:
    """What the library decodes, each byte that is part of no character replaced before.

    The characters of a run are found as SentencePiece finds them, one after another.
    """
    backend = layout(name)._backend
    if "ByteFallback" not in str(LAYOUTS[name]):
        return backend.decode(ids, skip_special_tokens=skip)
    seen = [i for i in ids if backend.id_to_token(i) is not None and not (skip and i < 2)]
    out: list[int] = []
    at = 0
    while at < len(seen):
        for size in (1, 2, 3, 4):
            run = seen[at : at + size]
            if len(run) == size and all(token >= len(WORDS) for token in run):
                try:
                    bytes(token - len(WORDS) for token in run).decode()
                except UnicodeDecodeError:
                    continue
                out += run
                break
        else:
            size = 1
            out.append(seen[at] if seen[at] < len(WORDS) else word(BAD))
        at += size
    return backend.decode(out, skip_special_tokens=skip)


def after(name: str, prompt: list[int], output: list[int], skip: bool = True) -> list[str]:
    """The pieces of an output, the rest at its end last."""
    detokenizer = Detokenizer(layout(name), skip, prompt)
    return [*map(detokenizer.push, output), detokenizer.finish()]


TOKENS = st.lists(
    st.one_of(
        st.integers(0, len(WORDS) + 1),
        st.sampled_from(HARD).map(lambda byte: len(WORDS) + byte),
        st.just(len(WORDS) + 300),  # an id without a token
    ),
    max_size=14,
)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=300, deadline=None)
@given(ids=TOKENS, skip=st.booleans())
@example(ids=raw(b"\xe5\x8f"), skip=False)
@example(ids=raw(b"\xe5\x8fa"), skip=False)
@example(ids=[0, 2, word(SPACE), word(SPACE + "a")], skip=True)
def test_the_text_of_tokens_is_the_librarys(name: str, ids: list[int], skip: bool) -> None:
    assert layout(name).decode(ids, skip_special=skip) == library(name, ids, skip)


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=400, deadline=None)
@given(prompt=TOKENS, output=TOKENS, skip=st.booleans())
@example(prompt=[0], output=[word(SPACE + "a")], skip=True)
@example(prompt=[0], output=[word(SPACE + "a")], skip=False)
@example(prompt=[0, word(SPACE)], output=[word(SPACE), word(SPACE + "a")], skip=True)
@example(prompt=raw("🤗")[:1], output=raw("🤗")[1:3], skip=True)
@example(prompt=[word("b"), *raw("🤗")[:2]], output=[1, *raw("🤗")[2:]], skip=True)
@example(prompt=[*raw("bbb"), *raw("🤗")[:3]], output=raw("🤗")[3:], skip=True)
@example(prompt=[*raw("bbb🤗")[:-1], 0, 2, 0, 2], output=raw("🤗")[3:], skip=True)
@example(prompt=[word("b"), *[word(SPACE)] * 3], output=[word(SPACE + "a")], skip=True)
@example(prompt=[*[word(SPACE)] * 4], output=[word(SPACE + "a")] * 2, skip=True)
def test_an_output_is_the_whole_less_the_prompt(
    name: str, prompt: list[int], output: list[int], skip: bool
) -> None:
    before, whole = library(name, prompt, skip), library(name, [*prompt, *output], skip)
    # A character that the output completes is its own: the prompt's text shows it broken.
    while not whole.startswith(before):
        assert before.endswith(BAD)
        before = before[:-1]
    assert "".join(after(name, prompt, output, skip)) == whole[len(before) :]


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_pieces_come_with_the_tokens_that_the_library_gives_them_with(
    name: str, data: st.DataObject
) -> None:
    """The library's own incremental decoder, fed with the prompt first, over whole characters."""
    part = st.one_of(
        st.sampled_from([[word(SPACE + "a")], [word("b")], [word("é")], [word(f"c{SPACE}d")]]),
        st.sampled_from(["\n", "é", "🤗", "叫"]).map(raw),
    )
    begin = data.draw(st.sampled_from([[], [0], [0, 0]]))
    parts = st.lists(part, max_size=6).map(lambda drawn: list(chain.from_iterable(drawn)))
    prompt = [*begin, word("b"), *data.draw(parts)]
    output = data.draw(parts)
    stream = decoders.DecodeStream(ids=prompt, skip_special_tokens=True)
    backend = layout(name)._backend
    wanted = [stream.step(backend, token) or "" for token in output]
    assert after(name, prompt, output) == [*wanted, ""]


@pytest.mark.parametrize(
    ("name", "prompt", "output", "pieces"),
    [
        ("llama", [0, word(SPACE + "a")], [word(SPACE + "a"), word("b")], [" a", "b", ""]),
        ("llama", [0], [word(SPACE + "a"), word(SPACE + "a")], ["a", " a", ""]),
        ("llama", [], [word(SPACE + "a"), word(SPACE + "a")], ["a", " a", ""]),
        ("llama", [0, word(SPACE)], [word(SPACE + "a")], [" a", ""]),
        ("llama", [0, *raw("\n")], [word(SPACE + "a")], [" a", ""]),
        ("strip two", [word(SPACE)], [word(SPACE + "a"), word(SPACE + "a")], ["a", " a", ""]),
        ("metaspace always", [word("b")], [word(SPACE + "a")], [" a", ""]),
        ("metaspace first", [word("b")], [word(SPACE + "a")], [" a", ""]),
        ("metaspace first", [0], [word(SPACE + "a")], ["a", ""]),
        ("metaspace never", [0], [word(SPACE + "a")], [" a", ""]),
        ("no decoder", [word("b")], [word("b"), word("é")], [" b", " é", ""]),
        ("no decoder", [0], [word("b"), word("é")], ["b", " é", ""]),
        ("byte-level", [word("b")], [word(SPACE + "a")], ["▁a", ""]),
    ],
)
def test_the_beginning_belongs_to_the_prompt(
    name: str, prompt: list[int], output: list[int], pieces: list[str]
) -> None:
    assert after(name, prompt, output) == pieces


def test_a_prompt_of_markup_has_a_text_only_if_markup_is_shown() -> None:
    output = [word(SPACE + "a")]
    assert after("llama", [0, 1], output, skip=True) == ["a", ""]
    assert after("llama", [0, 1], output, skip=False) == [" a", ""]
    assert after("metaspace first", [0, 1], output, skip=False) == [" a", ""]


@pytest.mark.parametrize("name", ["byte-level", "llama"])
def test_a_character_that_the_output_completes_is_its_own(name: str) -> None:
    first, rest = raw("🤗")[:2], raw("🤗")[2:]
    assert after(name, [word("b"), *first], [*rest, word("b")]) == ["", "🤗", "b", ""]
    # Markup that is left out does not break it; markup that is shown does.
    assert after(name, [*first, 1], rest, skip=True) == ["", "🤗", ""]
    assert "🤗" not in "".join(after(name, [*first, 1], rest, skip=False))


@pytest.mark.parametrize("name", ["byte-level", "llama"])
def test_a_character_that_the_prompt_left_broken_is_not_output_again(name: str) -> None:
    first = raw("🤗")[:2]
    assert after(name, first, []) == [""]
    assert after(name, first, [1]) == ["", ""]
    assert after(name, first, [word("b")]) == ["b", ""]
    assert after(name, [word("b"), *first], [word("é"), word(BAD)]) == ["é", BAD, ""]


def test_bytes_of_the_output_are_shown_once_each() -> None:
    first, rest = raw("🤗")[:2], raw("🤗")[2:3]
    # A byte-level text has one U+FFFD for the whole beginning of a character, which the prompt
    # shows already; a SentencePiece text has one for each byte.
    assert after("byte-level", first, [*rest, word("b")]) == ["", "b", ""]
    assert after("llama", first, [*rest, word("b")]) == ["", BAD + "b", ""]
    assert after("byte-level", first, rest) == ["", ""]
    assert after("llama", first, rest) == ["", BAD]


def test_each_finished_character_of_a_run_is_text_at_once() -> None:
    ids = raw("a\né🤗")
    assert after("llama", [], ids) == ["a", "\n", "", "é", "", "", "", "🤗", ""]


def test_what_was_released_of_a_run_is_not_taken_back() -> None:
    run = raw(b"a\xf0\x9f\xe5\x8f\xab\xffb\xe5")
    assert after("llama", [], run) == ["a", "", "", BAD * 2, "", "叫", BAD, "b", "", BAD]
    text = "a" + BAD * 2 + "叫" + BAD + "b" + BAD
    assert layout("llama").decode(run, skip_special=True) == text
    # The library takes all of it for broken.
    assert layout("llama")._backend.decode(run) == BAD * len(run)


@pytest.mark.parametrize(
    "run", [b"\xe5\x8f", b"\xff", b"\x80\x80\x80\x80\x80", b"\xf0\x9f\xf0\x9f"]
)
def test_a_run_without_a_character_is_what_the_library_makes_of_it(run: bytes) -> None:
    ids = [*raw(run), word("b")]
    assert layout("llama").decode(ids, skip_special=True) == BAD * len(run) + "b"
    assert layout("llama")._backend.decode(ids) == BAD * len(run) + "b"


@pytest.mark.parametrize("piece", ["<0x4a>", "<0x4A>", "<0xé>", "<0x4>", "<0x \u0664>", "<0x4A>>"])
def test_what_looks_like_a_byte_is_one_where_the_library_says_so(piece: str) -> None:
    backend = Backend(models.WordLevel({"w": 0, piece: 1}, unk_token="w"))
    backend.decoder = LAYOUTS["llama"]
    text = Tokenizer(backend, "tiny", SpecialTokens()).decode([0, 1, 0], skip_special=True)
    assert text == backend.decode([0, 1, 0])
    assert text == ("wJw" if piece.lower() == "<0x4a>" else f"w{piece}w")


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("tail", [b"", b"\xf0", b"\xf0\x9f\xa4"])
def test_a_long_prompt_costs_what_a_short_one_costs(
    name: str, tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    honest = Tokenizer.token

    def token(self: Tokenizer, token_id: int) -> str | None:
        asked.append(token_id)
        return honest(self, token_id)

    monkeypatch.setattr(Tokenizer, "token", token)
    Detokenizer(layout(name), True, [0, *[word("b")] * 32768, *raw(tail)])
    assert len(asked) <= 12
