"""An added token is its content, whatever its letters would spell in the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import sentence_pieces
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from outrider.text.detokenizer import Detokenizer
from outrider.text.gguf_tokenizer import GgufVocabulary, build_tokenizer
from outrider.text.pieces import byte_alphabet
from outrider.text.tokenizer import SpecialTokens, Tokenizer

#: All of these letters also spell bytes, but for the Chinese ones and the space.
CONTENTS = ["größe", "déjà", "đem", "čaj", "naïve", "Ġx", "ï»¿", "中文", "a größe b", "<x>"]
BAR = "\uff5c"
SPECIAL = ["<eos>", "<ende_größe>", f"{BAR}Ende{BAR}"]
LETTERS = {byte: letter for letter, byte in byte_alphabet().items()}
FIRST_BYTE = len(SPECIAL)
FIRST_ADDED = FIRST_BYTE + 256


def from_hub_files() -> Tokenizer:
    pieces = [*SPECIAL, *(LETTERS[byte] for byte in range(256))]
    backend = Backend(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, normalized=False) for text in CONTENTS])
    return Tokenizer(Backend.from_str(backend.to_str()), "tokenizer.json", SpecialTokens())


def from_gguf() -> Tokenizer:
    tokens = [*SPECIAL, *(LETTERS[byte] for byte in range(256)), *CONTENTS]
    kinds = [*[3] * len(SPECIAL), *[1] * 256, *[4] * len(CONTENTS)]
    vocabulary = GgufVocabulary("m.gguf", "gpt2", tokens, "gpt-2", kinds)
    return Tokenizer(build_tokenizer(vocabulary), "m.gguf", SpecialTokens())


BYTE_LEVEL = {"folder": from_hub_files(), "gguf": from_gguf()}


def pieces(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


def spell(data: bytes) -> list[int]:
    return [FIRST_BYTE + byte for byte in data]


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("text", CONTENTS)
def test_added_tokens_come_back_in_byte_level_vocabularies(kind: str, text: str) -> None:
    tokenizer = BYTE_LEVEL[kind]
    token = FIRST_ADDED + CONTENTS.index(text)
    assert tokenizer.encode(text, add_special=False) == [token]
    assert tokenizer.decode([token], skip_special=True) == text
    assert tokenizer.token_text(token) == text
    around = [*spell(b"("), token, token, *spell("é".encode())]
    assert tokenizer.decode(around, skip_special=True) == f"({text}{text}é"
    assert pieces(tokenizer, around) == ["(", text, text, "", "é", ""]


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_special_tokens_come_back_where_they_are_shown(kind: str) -> None:
    tokenizer = BYTE_LEVEL[kind]
    ids = [0, *spell(b"x"), 1, 2]
    assert tokenizer.decode(ids, skip_special=False) == f"<eos>x<ende_größe>{BAR}Ende{BAR}"
    assert pieces(tokenizer, ids, False) == ["<eos>", "x", "<ende_größe>", f"{BAR}Ende{BAR}", ""]
    assert tokenizer.decode(ids, skip_special=True) == "x"


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_an_added_token_between_two_halves_of_a_character_breaks_it(kind: str) -> None:
    tokenizer = BYTE_LEVEL[kind]
    first, rest = spell("🤗".encode()[:2]), spell("🤗".encode()[2:])
    ids = [*first, FIRST_ADDED, *rest]
    assert pieces(tokenizer, ids) == ["", "", "\ufffdgröße", "\ufffd", "\ufffd", ""]
    assert tokenizer.decode(ids, skip_special=True) == "\ufffdgröße\ufffd\ufffd"
    assert tokenizer.decode([*first, 1, *rest], skip_special=True) == "🤗"


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_the_vocabularys_own_pieces_are_still_bytes(kind: str) -> None:
    """The same letters, one token each, spell bytes, also where one is listed as added."""
    tokenizer = BYTE_LEVEL[kind]
    backend = Backend.from_str(tokenizer._backend.to_str())
    backend.add_tokens([AddedToken("é", normalized=False), AddedToken("Ċ", normalized=False)])
    listed = Tokenizer(backend, "tiny", SpecialTokens())
    assert listed.vocab_size == tokenizer.vocab_size
    assert listed.decode(spell("鱼\n".encode()), skip_special=True) == "鱼\n"
    assert tokenizer.decode(spell(b"\xfe"), skip_special=True) == "\ufffd"
    assert tokenizer.token(spell(b"\xfe")[0]) == "þ"
    assert tokenizer.decode(spell("größe".encode()), skip_special=True) == "größe"


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_mixture_is_the_texts_in_order(kind: str, data: st.DataObject) -> None:
    part = st.one_of(st.sampled_from(CONTENTS), st.text(max_size=3))
    texts = data.draw(st.lists(part, max_size=8))
    ids: list[int] = []
    for text in texts:
        added = text in CONTENTS
        ids += [FIRST_ADDED + CONTENTS.index(text)] if added else spell(text.encode())
    assert "".join(pieces(BYTE_LEVEL[kind], ids)) == "".join(texts)
    assert BYTE_LEVEL[kind].decode(ids, skip_special=True) == "".join(texts)


# -- SentencePiece -------------------------------------------------------------------------------

SPACED = ["x\u2581y", "\u2581z\u2581", "größe", " two spaces  ", "<0x+4>", "<0x\u0664\u0661>"]


def sentence_piece(added: list[str]) -> tuple[Tokenizer, int]:
    """A GGUF vocabulary with tokens added at its end, and the first of their ids."""
    tokens, scores, kinds = sentence_pieces()
    vocabulary = GgufVocabulary(
        "tiny",
        "llama",
        [*tokens, *added],
        token_types=[*kinds, *[4] * len(added)],
        scores=[*scores, *[-999.0] * len(added)],
        unk_id=0,
    )
    return Tokenizer(build_tokenizer(vocabulary), "tiny", SpecialTokens()), len(tokens)


@pytest.mark.parametrize("text", SPACED)
def test_added_tokens_come_back_in_sentence_piece_vocabularies(text: str) -> None:
    tokenizer, first = sentence_piece(SPACED)
    token = first + SPACED.index(text)
    byte = 3 + ord("a")
    assert pieces(tokenizer, [token]) == [text, ""]
    assert pieces(tokenizer, [byte, token, byte]) == ["a", text, "a", ""]
    assert tokenizer.decode([token, token], skip_special=True) == text * 2
    assert tokenizer.encode(text, add_special=False) == [token]


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()]),
        decoders.Metaspace(),
        None,
    ],
)
def test_text_that_looks_like_a_byte_or_a_space_is_text(decoder: decoders.Decoder | None) -> None:
    """The model has no such piece, so the token can only come from its content."""
    backend = Backend(models.WordLevel({"w": 0}, unk_token="w"))
    if decoder is not None:
        backend.decoder = decoder
    added = ["<0x41>", "\u2581\u2581", "a\u2581b"]
    backend.add_tokens([AddedToken(text, normalized=False) for text in added])
    tokenizer = Tokenizer(backend, "tiny", SpecialTokens())
    joint = " " if decoder is None else ""
    assert tokenizer.decode([1, 2, 3], skip_special=True) == joint.join(added)
    assert pieces(tokenizer, [1]) == ["<0x41>", ""]


def test_the_models_own_spaces_and_bytes_stay_what_they_spell() -> None:
    """Gemma lists its runs of spaces, which ordinary text is cut into, among its added tokens."""
    vocabulary = {"w": 0, "<0x41>": 1, "\u2581": 2, "\u2581\u2581": 3}
    backend = Backend(models.BPE(vocabulary, [("\u2581", "\u2581")], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.add_tokens([AddedToken(text, normalized=False) for text in ("<0x41>", "\u2581\u2581")])
    tokenizer = Tokenizer(backend, "tiny", SpecialTokens())
    assert tokenizer.encode("A", add_special=False) == [1]
    assert tokenizer.decode([0, 3, 0, 1], skip_special=True) == "w  wA"


def test_added_tokens_of_a_folder_come_back(tmp_path: Path) -> None:
    """The same through a file, beside byte tokens."""
    pieces_of_model = ["<unk>", "\u2581", "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Backend(
        models.BPE(
            {piece: index for index, piece in enumerate(pieces_of_model)},
            [],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_tokens([AddedToken("größe\u2581", normalized=False)])
    backend.add_special_tokens([AddedToken("<0x4a>", special=True)])
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = Backend.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(loaded, "tokenizer.json", SpecialTokens())
    added = len(pieces_of_model)
    ids = [1, added, 1, 2, added + 1, 3 + 0x4A]
    assert tokenizer.decode(ids, skip_special=False) == "größe\u2581 a<0x4a>J"
    assert tokenizer.decode(ids, skip_special=True) == "größe\u2581 aJ"
