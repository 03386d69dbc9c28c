"""Special ids of GGUF files: defaults, ids outside the vocabulary, and what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from checkpoint_files import VOCAB, llama_tensors, write_gguf
from gguf import GGUFWriter

from outrider import LLM, SamplingParams
from outrider.loaders.fields import Fields
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.gguf_tokenizer import ROLES, GgufText, read_text
from outrider.text.gguf_tokenizer import SPLITTINGS
from outrider.types.errors import ModelError, RequestError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGH"
BYTES = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": ["<|x|>", "<|y|>", *LETTERS],
    "token_type": [3, 3, *[1] * len(LETTERS)],
}
PIECES = {
    "model": "llama",
    "tokens": ["<unk>", "<s>", "</s>", "▁", "▁a", *LETTERS],
    "token_type": [2, 3, 3, *[1] * (len(LETTERS) + 2)],
    "scores": [0.0] * (len(LETTERS) + 5),
}


def text_of(*tables: dict[str, object], rows: int = 99, without: Sequence[str] = ()) -> GgufText:
    merged = {key: value for table in tables for key, value in table.items()}
    values = {f"tokenizer.ggml.{key}": merged[key] for key in merged.keys() - set(without)}
    return read_text(Fields("x.gguf", values), rows)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.name == "outrider" for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_sentence_piece_file_without_ids_has_llama_cpps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for types in (["token_type"], []):
        text = text_of(PIECES, without=types)
        tokenizer = text.tokenizer()
        assert text.vocabulary.special == {"bos": 1, "eos": 2, "unk": 0}
        assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,))
        assert tokenizer.encode("a", add_special=True) == [1, 4]
        assert tokenizer.encode("a🤗", add_special=False) == [4, 0]
        assert tokenizer.special_ids == {0, 1, 2}
        assert text.special.named == {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
        }
    assert not warnings_of(caplog)


def test_a_byte_level_file_without_ids_has_llama_cpps_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = text_of(BYTES)
    tokenizer = text.tokenizer()
    assert text.vocabulary.special == {"bos": 11, "eos": 11}
    assert tokenizer.eos_ids == (11,)
    assert tokenizer.encode("ajb", add_special=True) == [2, 11, 3]
    # A letter that no file named is no variable of a template.
    assert text.special.named == {}
    (line,) = warnings_of(caplog)
    assert line == "x.gguf: field tokenizer.ggml.eos_token_id is missing: 11 ('j') is taken"
    assert text_of(BYTES, {"tokens": ["a"], "token_type": [1]}).vocabulary.special == {}


def test_ids_of_the_file_win(caplog: pytest.LogCaptureFixture) -> None:
    named = {"bos_token_id": 5, "eos_token_id": 0, "unknown_token_id": 6, "eot_token_id": 1}
    for table, ends in ((PIECES, (0, 1, 2)), (BYTES, (0, 1))):
        text = text_of(table, named)
        assert text.vocabulary.special == {"bos": 5, "eos": 0, "unk": 6, "eot": 1}
        assert text.special.eos_ids == ends
        text.tokenizer()
    assert not warnings_of(caplog)


FIELDS = [(role, name) for role, names in ROLES.items() for name in names]


@pytest.mark.parametrize("table", [BYTES, PIECES], ids=["gpt2", "llama"])
@pytest.mark.parametrize(("role", "name"), FIELDS)
def test_every_id_is_checked_against_the_vocabulary(
    role: str, name: str, table: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    count = len(table["tokens"])
    usual = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    for wrong, rows, fault in (
        (count, 99, f"but there are {count} tokens"),
        (4294967295, 99, f"but there are {count} tokens"),
        (-1, 99, f"but there are {count} tokens"),
        (count - 1, count - 1, f"but the embedding has {count - 1} rows"),
    ):
        caplog.clear()
        text = text_of(table, usual, {name: wrong}, rows=rows)
        tokenizer = text.tokenizer()
        default = {"bos": 1, "eos": 2, "unk": 0}.get(role) if table is PIECES else None
        assert text.vocabulary.special.get(role) == default
        assert all(0 <= token < rows for token in tokenizer.eos_ids)
        taken = "it is left out"
        if default is not None:
            taken = f"{default} ({table['tokens'][default]!r}) is taken"
        (line,) = warnings_of(caplog)
        assert line == f"x.gguf: field tokenizer.ggml.{name} is {wrong}, {fault}: {taken}"
        assert max(tokenizer.encode("abc", add_special=True)) < rows


@pytest.mark.parametrize("table", [BYTES, PIECES], ids=["gpt2", "llama"])
@pytest.mark.parametrize("value", ["2", 1.5, [2], True])
def test_ids_of_other_types_are_refused(table: dict[str, object], value: object) -> None:
    with pytest.raises(ModelError, match=r"^x\.gguf: field .*eot_token_id must be an integer, not"):
        text_of(table, {"eot_token_id": value})


def test_what_stands_around_a_text() -> None:
    def around(*tables: dict[str, object]) -> list[int]:
        return text_of(*tables).tokenizer().encode("a", add_special=True)

    ids = {"bos_token_id": 0, "eos_token_id": 1}
    assert around(BYTES, ids) == [2]
    for pre in ("llama-bpe", "tekken", "falcon3"):
        assert around(BYTES, ids, {"pre": pre}) == [0, 2]
        assert around(BYTES, ids, {"pre": pre, "add_bos_token": False}) == [2]
    assert around(BYTES, ids, {"add_bos_token": True, "add_eos_token": True}) == [0, 2, 1]
    assert around(PIECES, ids) == [0, 4]
    assert around(PIECES, {"add_bos_token": False, "add_eos_token": True}) == [4, 2]
    # An id that is left out begins no text where the file did not ask for one.
    assert around(BYTES, {"pre": "llama-bpe", "bos_token_id": 99}) == [2]
    message = "add_eos_token must be false, since field .*eos_token_id is 99, but there are 36 tok"
    with pytest.raises(ModelError, match=message):
        text_of(BYTES, {"add_eos_token": True, "eos_token_id": 99})
    few = {"tokens": ["a"], "token_type": [1], "add_bos_token": True}
    with pytest.raises(ModelError, match=r"add_bos_token must be false, since .* is missing"):
        text_of(BYTES, few)


@pytest.mark.parametrize("pre", [None, "", "gpt-9", "qwen9"])
def test_an_uncertain_cut_is_said_once(pre: str | None, caplog: pytest.LogCaptureFixture) -> None:
    text = text_of(BYTES, {"pre": pre, "eos_token_id": 99})
    ours = text.tokenizer()
    (line,) = warnings_of(caplog)
    assert "eos_token_id is 99" in line
    fault = f"{pre!r} is unknown" if pre else "is missing"
    assert f'field tokenizer.ggml.pre {fault}, so text is cut as "default" does' in line
    plain = text_of(BYTES, {"pre": "default", "eos_token_id": 0}).tokenizer()
    assert ours.encode("abc defg", add_special=False) == plain.encode("abc defg", add_special=False)
    assert len(warnings_of(caplog)) == 1


def test_merges_that_are_cut_short_are_said(caplog: pytest.LogCaptureFixture) -> None:
    words = {"tokens": ["a", "b", "c", "ab", "abc"], "token_type": [1] * 5, "eos_token_id": 0}
    for merges, pre, told in (
        (["a b", "ab c"], "gpt-2", []),
        (["a b"], "gpt-2", ["1 text tokens such as 'abc' are made by no merge"]),
        (["a b"], "llama-bpe", []),
    ):
        caplog.clear()
        text_of(BYTES, words, {"merges": merges, "pre": pre}).tokenizer()
        lines = warnings_of(caplog)
        assert len(lines) == len(told)
        assert all(part in line for part, line in zip(told, lines, strict=True))


def test_known_cuts_are_certain(caplog: pytest.LogCaptureFixture) -> None:
    for pre in SPLITTINGS:
        text_of(BYTES, {"pre": pre, "bos_token_id": 0, "eos_token_id": 0}).tokenizer()
    text_of(PIECES, {"pre": "anything"}).tokenizer()
    assert not warnings_of(caplog)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (PIECES, {"scores": [0.0] * 3}, "scores must have 39 entries, not 3"),
        (PIECES, {"scores": [float("nan")] * 39}, "scores must be a list of numbers, not"),
        (PIECES, {"scores": ["1"] * 39}, "scores must be a list of numbers, not"),
        (PIECES, {"scores": None}, "scores is missing"),
        (BYTES, {"tokens": ["a", 1]}, "tokens must be a list of strings, not"),
        (BYTES, {"tokens": "ab"}, "tokens must be a list of strings, not 'ab'"),
        (BYTES, {"token_type": [1] * 9}, "token_type must have 36 entries, not 9"),
        (BYTES, {"token_type": ["x"] * 36}, "token_type must be a list of integers, not"),
        (BYTES, {"merges": ["a zz"]}, "merges does not fit the tokens: .*zz"),
        (BYTES, {"merges": [7]}, "merges must be a list of strings, not"),
        (BYTES, {"add_bos_token": "yes"}, "add_bos_token must be true or false, not 'yes'"),
        (BYTES, {"pre": 3}, "pre must be a string, not 3"),
    ],
)
def test_refusals_are_one_line(
    table: dict[str, object], change: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=rf"^x\.gguf: field tokenizer\.ggml\.{message}") as caught:
        text_of(table, change).tokenizer()
    assert "\n" not in str(caught.value)


def control(writer: GGUFWriter) -> None:
    """More tokens than rows; <|im_end|> is typed as text and the file names no end."""
    table = writer.kv_data[0]
    for key in ("tokens", "token_type", "eos_token_id"):
        table.pop(f"tokenizer.ggml.{key}")
    tokens = ["<|x|>", "<s>", "<|im_end|>", *LETTERS, "Ġ", "Ċ", "!", "<|beyond|>", "ö"]
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 1, *[1] * (len(tokens) - 5), 3, 1])


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = tmp_path_factory.mktemp("files") / "m.gguf"
    write_gguf(path, llama_tensors(), extra=control)
    assert GgufCheckpoint(path).config.eos_ids == (11, 2)
    return LLM(str(path), drafter="none", threads=1)


def test_an_end_that_is_typed_as_text_ends_an_answer(llm: LLM) -> None:
    bias = dict.fromkeys(range(VOCAB), -100.0) | {2: 100.0}
    params = SamplingParams(max_tokens=4, temperature=0, logit_bias=bias)
    out = llm.chat([{"role": "user", "content": "ab"}], params)[0]
    assert out.prompt_token_ids == [3, 4, 2]
    answer = out.outputs[0]
    assert (answer.token_ids, answer.text, answer.finish_reason) == ([2], "", "stop")
    late = SamplingParams(max_tokens=4, temperature=0, min_tokens=2, logit_bias=bias)
    assert len(llm.generate("ab", late)[0].outputs[0].token_ids) == 3


def test_tokens_without_a_row_are_refused_by_their_text(llm: LLM) -> None:
    assert llm.tokenizer.vocab_size == VOCAB + 2
    params = SamplingParams(max_tokens=2, temperature=0)
    assert len(llm.generate("ab", params)[0].outputs[0].token_ids) == 2
    for prompt, shown in (
        ("a<|beyond|>", r"40 \('<\|beyond\|>'\)"),
        ([3, 41], r"41 \('ö'\)"),
        ([3, 77], "77"),
    ):
        message = rf"^prompt: token {shown} is outside the vocabulary of {VOCAB}$"
        with pytest.raises(RequestError, match=message):
            llm.generate(prompt, params)


def test_a_file_without_a_usable_tokenizer_says_so_when_it_is_asked(tmp_path: Path) -> None:
    def damage(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.tokens")

    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=damage))
    assert (checkpoint.config.eos_ids, checkpoint.config.bos_id) == ((), None)
    with pytest.raises(ModelError, match=r"field tokenizer\.ggml\.tokens is missing"):
        checkpoint.tokenizer()


def test_tokens_spelled_alike(caplog: pytest.LogCaptureFixture) -> None:
    """Text becomes the later, as in llama.cpp; both are text when they are drawn."""
    letters = list(LETTERS)
    letters[5] = letters[20] = "a"
    text = text_of(BYTES, {"tokens": ["<|x|>", "<|y|>", *letters]})
    tokenizer = text.tokenizer()
    assert tokenizer.encode("a", add_special=False) == [22]
    assert tokenizer.decode([2, 7, 22, 3], skip_special=True) == "aaab"
    (warning,) = warnings_of(caplog)
    assert "tokens 2 and 22 of 2 such pairs are both 'a'" in warning
