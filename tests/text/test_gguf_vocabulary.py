"""What the tokens of a GGUF file are: markup and ends of answers, whatever a converter wrote."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import sentence_pieces
from tokenizers import pre_tokenizers

from outrider.text.gguf_tokenizer import build_tokenizer
from outrider.text.gguf_vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    GgufVocabulary,
)
from outrider.text.tokenizer import SpecialTokens, Tokenizer

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
DEEPSEEK = "<\uff5cend▁of▁sentence\uff5c>"
TYPES = [NORMAL, CONTROL, USER_DEFINED, UNUSED, 0, 7, -1]


def byte_level(
    markup: Sequence[str], types: Sequence[int] = (), merges: Sequence[str] = (), **fields: object
) -> GgufVocabulary:
    """``markup`` first, then the bytes, then what the merges make."""
    made = [merge.replace(" ", "") for merge in merges]
    made = [token for token in made if token not in markup]
    tokens = [*markup, *ALPHABET, *made]
    kinds = [*types, *[NORMAL] * (len(tokens) - len(types))] if types else []
    values = {"pre": "gpt-2", "token_types": kinds, "merges": merges, **fields}
    return GgufVocabulary("x.gguf", "gpt2", tokens, **values)


def encode(vocabulary: GgufVocabulary, text: str) -> list[int]:
    return build_tokenizer(vocabulary).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "name",
    [
        *("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>"),
        *("<end_of_turn>", "<end_of_utterance>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "</s>"),
        *("<eos>", "<turn|>", "<|return|>", "<|call|>", "[e~[", DEEPSEEK),
        *("<|fim_pad|>", "<PAD>", "[PAD]", "<|repo_name|>", "<reponame>", "<|file_sep|>"),
    ],
)
@pytest.mark.parametrize("kind", TYPES)
def test_known_names_end_an_answer_whatever_their_type(name: str, kind: int) -> None:
    for types in ([CONTROL, kind], []):
        vocabulary = byte_level(["<|x|>", name], types)
        assert vocabulary.end_ids == (1,)
        assert vocabulary.kinds[1] == CONTROL
        assert encode(vocabulary, f"a{name}b").count(1) == 1
        ours = Tokenizer(build_tokenizer(vocabulary), "x", SpecialTokens())
        assert ours.decode(encode(vocabulary, f"a{name}b"), skip_special=True) == "ab"


MARKUP = ["<|im_start|>", "<|im_end|>", "<|user|>", "<start_of_turn>", "</s>", "<s>", "<unk>"]


@settings(max_examples=60, deadline=None)
@given(types=st.lists(st.sampled_from(TYPES), min_size=len(MARKUP), max_size=len(MARKUP)))
def test_types_do_not_matter_for_known_markup(types: list[int]) -> None:
    # The one name that is known by its shape alone keeps a type that says what it is.
    types[2] = NORMAL if types[2] == UNUSED else types[2]
    right = byte_level(MARKUP, [CONTROL] * len(MARKUP))
    given_ = byte_level(MARKUP, types)
    for text in ("<s><|im_start|>user\nhi<|im_end|>\n<|user|></s>", "a</s>b<unk><start_of_turn>"):
        assert encode(given_, text) == encode(right, text)
    assert given_.end_ids == right.end_ids == (1, 4)


def test_a_name_that_text_can_become_is_text() -> None:
    """HTML holds ``</s>``; merges that make it say that it is no markup there."""
    merges = ["< /", "</ s", "</s >"]
    made = byte_level(["<eos>"], [CONTROL], merges)
    assert made.end_ids == (0,)
    assert made.kinds[made.ids["</s>"]] == NORMAL
    typed = byte_level(["</s>"], [CONTROL], merges)
    assert typed.end_ids == (0,)
    # No text has the shape of <|name|>, so merges do not make it text.
    name = "<|im_end|>"
    merges = [f"{name[:cut]} {name[cut]}" for cut in range(1, len(name))]
    chat = byte_level([name], [NORMAL], merges)
    assert chat.end_ids == (0,)
    assert encode(chat, f"a{name}b").count(0) == 1


def test_what_the_file_names_ends_an_answer_and_is_markup() -> None:
    for kind, role in product(TYPES, ("eos", "eot", "eom")):
        vocabulary = byte_level(["<stop>"], [kind], special={role: 0})
        assert vocabulary.end_ids == (0,)
        assert encode(vocabulary, "a<stop>")[-1] == 0
    for role in ("fim_pad", "fim_rep", "fim_sep"):
        assert byte_level(["<stop>"], [CONTROL], special={role: 0}).end_ids == (0,)
    for role in ("bos", "unk", "pad", "sep", "mask", "fim_pre"):
        assert byte_level(["<stop>"], [CONTROL], special={role: 0}).end_ids == ()
    # A plain letter that ends an answer stays a letter of prompts.
    letter = byte_level([], special={"eos": ALPHABET.index("x")})
    assert letter.end_ids == (ALPHABET.index("x"),)
    assert letter.kinds[letter.end_ids[0]] == NORMAL
    assert len(encode(letter, "axa")) == 3


def test_ends_named_by_the_file_come_first() -> None:
    names = ["<|endoftext|>", "<|eot_id|>", "<|im_end|>", "<stop>"]
    vocabulary = byte_level(names, [CONTROL] * 4, special={"eos": 3, "eot": 2})
    assert vocabulary.end_ids == (3, 2, 0, 1)


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["<|end|>", "<|return|>", "<|call|>"], (1, 2)),
        (["<|end|>", "<|call|>", "<|flush|>"], (1, 2)),
        (["<|end|>", "<|calls|>", "<|flush|>"], (1, 2)),
        (["<|end|>", "<|return|>", "<|x|>"], (0, 1)),
        (["<|end|>", "<|call|>", "<|x|>"], (0, 1)),
        (["</s>", "<|tool_response>", "<turn|>"], (1, 2)),
        (["</s>", "<turn|>", "<|x|>"], (0, 1)),
    ],
)
def test_names_that_end_nothing_beside_others(names: list[str], ends: tuple[int, ...]) -> None:
    for special in ({}, {"eos": 0}):
        vocabulary = byte_level(names, [CONTROL] * 3, special=special)
        assert sorted(vocabulary.end_ids) == list(ends)
    if 0 not in ends:
        shown = USER_DEFINED if names[0] == "<|end|>" else NORMAL
        assert vocabulary.kinds[0] == shown


def test_what_structures_an_answer_is_part_of_its_text() -> None:
    names = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"]
    vocabulary = byte_level(names, [CONTROL] * 6)
    ours = Tokenizer(build_tokenizer(vocabulary), "x", SpecialTokens())
    text = "<|start|>a<|channel|>b<|message|>c<|end|>"
    ids = ours.encode(text + "<|return|>", add_special=False)
    assert [token for token in ids if token < 6] == [0, 1, 2, 3, 4]
    assert ours.decode(ids, skip_special=True) == text


def test_shape_alone_is_markup_where_no_type_says_more() -> None:
    for kind, wanted in (
        (NORMAL, CONTROL),
        (0, CONTROL),
        (CONTROL, CONTROL),
        (USER_DEFINED, USER_DEFINED),
        (UNUSED, UNUSED),
        (UNKNOWN, UNKNOWN),
    ):
        assert byte_level(["<|narrator|>"], [kind]).kinds[0] == wanted
    for text in ("<| a|>", "<|a", "a|>", "<||>", "<|a|><|b|>", "|>"):
        assert byte_level([text], [NORMAL]).kinds[0] == NORMAL


def test_sentence_pieces_without_types_are_what_they_are_called() -> None:
    tokens, scores, kinds = sentence_pieces()
    special = {"bos": 1, "eos": 2, "unk": 0}
    typed = GgufVocabulary(
        "x", "llama", tokens, token_types=kinds, scores=scores, unk_id=0, special=special
    )
    wrong = [NORMAL] * len(tokens)
    for types in ([], wrong, [9] * len(tokens)):
        bare = GgufVocabulary(
            "x", "llama", tokens, token_types=types, scores=scores, unk_id=0, special=special
        )
        assert set(bare.kinds[3:259]) == {BYTE}
        assert bare.kinds[1:3] == (CONTROL, CONTROL)
        assert bare.end_ids == typed.end_ids == (2,)
        for text in ("<s>The fox</s>", "日本 <0x0A> 🤗\n", "<unk> fox"):
            assert encode(bare, text) == encode(typed, text), text


def test_an_unknown_token_is_markup() -> None:
    vocabulary = byte_level(["<odd>"], [UNKNOWN])
    assert encode(vocabulary, "a<odd>")[1:] == [0]
    assert not vocabulary.end_ids


@pytest.mark.parametrize("name", ["<s:0>", "$A", "$B:1", "a:b:c", "token1", "größe"])
def test_any_token_can_begin_and_end_a_text(name: str) -> None:
    vocabulary = byte_level([name, "</s>"], [CONTROL, CONTROL], prefix=(0,), suffix=(1, 0))
    tokenizer = build_tokenizer(vocabulary)
    inside = encode(vocabulary, "xyz")
    assert tokenizer.encode("xyz").ids == [0, *inside, 1, 0]


def test_ids_with_an_empty_token_add_no_text() -> None:
    vocabulary = byte_level(["<eos>", "", ""], [CONTROL, CONTROL, NORMAL], prefix=(1,))
    ours = Tokenizer(build_tokenizer(vocabulary), "x", SpecialTokens())
    assert ours.encode("a", add_special=True) == [1, 3 + ALPHABET.index("a")]
    assert ours.decode([1, 3 + ALPHABET.index("a"), 2], skip_special=False) == "a"
    assert ours.token(1) is None
    assert ours.vocab_size == 259


def test_merges_are_needed_for_what_only_merges_make() -> None:
    assert byte_level(["<|x|>", "</s>"]).unmade == ()
    assert byte_level(["</s>", "[PAD7]"], [CONTROL, UNUSED]).unmade == ()
    words = GgufVocabulary("x", "gpt2", ["a", "b", "c", "ab", "abc"], merges=["a b"])
    assert words.unmade == ("abc",)
