"""End tokens and side files of Hugging Face folders: what is left out, refused, or converted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from checkpoint_files import LLAMA, VOCAB, llama_tensors, write_folder
from tokenizer_files import byte_level, ours_of, sentence_piece, theirs_of, write
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from outrider import LLM, SamplingParams
from outrider.loaders.hf_config import read_config
from outrider.types.errors import ModelError, RequestError

USER = {"content": "<|user|>", "lstrip": False, "normalized": False, "special": True}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.name == "outrider" for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("value", "kept", "outside"),
    [
        (39, (39,), ""),
        (40, (), "40"),
        (4294967295, (), "4294967295"),
        ([5, 40, 7, 5, 99], (5, 7), "40, 99"),
        (-1, (), "-1"),
        ([5, -1, 40], (5,), "-1, 40"),
        ([-1, -1], (), "-1"),
        ([], (), ""),
    ],
)
def test_end_ids_outside_the_vocabulary_are_left_out(
    tmp_path: Path,
    file: str,
    value: object,
    kept: tuple[int, ...],
    outside: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {**LLAMA, "eos_token_id": 3} if file != "config.json" else LLAMA
    (tmp_path / "config.json").write_text(json.dumps(config))
    table = {**LLAMA, "eos_token_id": value} if file == "config.json" else {"eos_token_id": value}
    (tmp_path / file).write_text(json.dumps(table))
    # A file without an id that can be drawn does not hide the other.
    assert read_config(tmp_path).eos_ids == (kept or ((3,) if file != "config.json" else ()))
    told = f"{tmp_path / file}: field eos_token_id: {outside} left out, since the vocabulary has 40"
    assert [line.removesuffix(" tokens") for line in warnings_of(caplog)] == [told] * bool(outside)


def test_a_begin_id_outside_the_vocabulary_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for token in (40, -1):
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "bos_token_id": token}))
        assert read_config(tmp_path).bos_id is None
        (line,) = warnings_of(caplog)
        assert f"field bos_token_id: {token} left out" in line
        caplog.clear()


@pytest.mark.parametrize("value", [-2, [1, -2], -1.0, [True], "2", 1.0, [1.0], {"a": 1}])
def test_what_is_no_id_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "eos_token_id": value}))
    with pytest.raises(ModelError, match=r"config\.json: field eos_token_id must be .*, not"):
        read_config(tmp_path)


def test_an_end_token_without_a_row_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = byte_level()
    backend.add_tokens([f"<{index}>" for index in range(60)])
    folder = write(tmp_path, backend, {"tokenizer_config.json": {"eos_token": "<59>"}})
    assert ours_of(folder).eos_ids == (2,)
    (line,) = warnings_of(caplog)
    assert line.endswith(
        "eos_token '<59>' has the id 320, but the vocabulary has 300 tokens: it is left out"
    )


def test_a_token_with_another_id_than_its_settings_say_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"added_tokens_decoder": {"290": USER, "1": {"content": "<bos>", "special": True}}}
    folder = write(tmp_path, byte_level(), {"tokenizer_config.json": settings})
    assert ours_of(folder).encode("<|user|>", add_special=False) == [261]
    assert theirs_of(folder).encode("<|user|>", add_special_tokens=False) == [261]
    (line,) = warnings_of(caplog)
    assert line.endswith("token '<|user|>' has the id 261, not 290 as in the settings")


LENIENT: list[Mapping[str, object]] = [
    {"bos_token": {"content": "<|user|>"}},
    {"additional_special_tokens": [USER]},
    {"extra_special_tokens": [USER]},
    {"extra_special_tokens": {"user_token": USER}},
]


@pytest.mark.parametrize("settings", LENIENT)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_objects_without_a_type_are_tokens_too(
    tmp_path: Path, settings: Mapping[str, object], file: str
) -> None:
    """transformers raises a TypeError on most of these; older versions wrote them."""
    ours = ours_of(write(tmp_path, byte_level(), {file: settings}))
    assert ours.encode("a<|user|>b", add_special=False)[1] == 261
    assert 261 in ours.special_ids


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer_config.json", {"bos_token": 5}, "field bos_token must be a token: .*, not 5"),
        ("tokenizer_config.json", {"eos_token": {}}, "field eos_token.content is missing"),
        (
            "tokenizer_config.json",
            {"additional_special_tokens": "<x>"},
            "field additional_special_tokens must be a list of tokens, or .*, not '<x>'",
        ),
        (
            "tokenizer_config.json",
            {"extra_special_tokens": ["<x>", 7]},
            "field extra_special_tokens.1 must be a token: .*, not 7",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"x": USER}},
            "field added_tokens_decoder must have ids, not 'x'",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"1": "<x>"}},
            "field added_tokens_decoder.1 must be an object with the token's content, not '<x>'",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"1": {**USER, "lstrip": 1}}},
            "field added_tokens_decoder.1.lstrip must be true or false, not 1",
        ),
        ("tokenizer_config.json", {"pad_token": "\ud800"}, "field pad_token must be valid Unicode"),
        ("special_tokens_map.json", [], "must hold a JSON object, not"),
        ("added_tokens.json", {"<x>": -1}, "field <x> must be an integer of at least 0, not -1"),
        ("generation_config.json", "{", "not valid JSON"),
        ("chat_template.json", {"chat_template": 5}, "field chat_template must be a string, not 5"),
    ],
)
def test_faults_in_side_files_are_one_line(
    tmp_path: Path, file: str, content: object, message: str
) -> None:
    folder = write(tmp_path, byte_level(), {file: content})
    with pytest.raises(ModelError, match=f"^{folder / file}: {message}") as caught:
        ours_of(folder)
    assert "\n" not in str(caught.value)


def spaced(scheme: str | None) -> Backend:
    """A tokenizer of Llama's kind: a normalizer puts the space before a text, or ``scheme``."""
    backend = sentence_piece()
    if scheme is not None:
        values = json.loads(backend.to_str())
        values["normalizer"] = None
        values["pre_tokenizer"] = {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": scheme,
            "split": False,
        }
        backend = Backend.from_str(json.dumps(values))
    return backend


@pytest.mark.parametrize("scheme", [None, "first", "always"])
@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer"])
def test_no_space_goes_before_a_text_if_llamas_settings_say_so(
    tmp_path: Path, name: str, scheme: str | None
) -> None:
    settings = {"tokenizer_class": name, "add_prefix_space": False, "eos_token": "<eos>"}
    folder = write(tmp_path, spaced(scheme), {"tokenizer_config.json": settings})
    ours, theirs = ours_of(folder), theirs_of(folder)
    for text in ("the the", " the", "a<eos>the", "größe"):
        ids = ours.encode(text, add_special=False)
        assert ids == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ids, skip_special=False) == text
    assert ours.encode("the the", add_special=False) == [268, 269]


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", None])
def test_other_classes_leave_the_space_as_the_tokenizer_has_it(
    tmp_path: Path, name: str | None
) -> None:
    settings = {"tokenizer_class": name, "add_prefix_space": False}
    folder = write(tmp_path, spaced(None), {"tokenizer_config.json": settings})
    wanted = theirs_of(folder).encode("the the", add_special_tokens=False)
    assert ours_of(folder).encode("the the", add_special=False) == wanted == [269, 269]


def test_which_template_wins(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "x"}]
    folder = write(tmp_path, byte_level(), {"chat_template.json": {"chat_template": "processor"}})
    assert ours_of(folder).render_chat(talk) == "processor"
    for settings, wanted in (
        ({"chat_template": "settings"}, "settings"),
        ({"chat_template": {"default": "table", "x": "y"}}, "table"),
        ({"chat_template": [{"name": "default", "template": "list"}]}, "list"),
        ({"chat_template": None}, "processor"),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        assert ours_of(folder).render_chat(talk) == wanted
    (folder / "chat_template.jinja").write_text("file")
    assert ours_of(folder).render_chat(talk) == "file"


def test_text_that_a_vocabulary_cannot_spell_is_refused(tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({"a": 0, "b": 1}, unk_token="<none>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ours = ours_of(write(tmp_path, backend, {}))
    assert ours.encode("a b", add_special=False) == [0, 1]
    with pytest.raises(RequestError, match=r"^prompt: .*tokenizer\.json cannot encode it: .*UNK"):
        ours.encode("a c", add_special=False)


@pytest.mark.parametrize("extra", [-8, 0, 5])
def test_more_or_fewer_tokens_than_rows_are_served(tmp_path: Path, extra: int) -> None:
    size = VOCAB + extra
    folder = write_folder(tmp_path / "m", LLAMA, llama_tensors())
    backend = Backend(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    llm = LLM(str(folder), drafter="none", threads=1)
    wanted = VOCAB - 1
    bias = dict.fromkeys(range(VOCAB), -100.0) | {wanted: 100.0}
    params = SamplingParams(max_tokens=2, temperature=0, logit_bias=bias)
    answer = llm.generate("w5 w6", params)[0].outputs[0]
    # An id that the tokenizer does not know adds no text.
    assert answer.token_ids == [wanted] * 2
    assert answer.text == ("" if extra < 0 else f"w{wanted} w{wanted}")
    if extra > 0:
        message = r"^prompt: token 42 \('w42'\) is outside the vocabulary of 40$"
        with pytest.raises(RequestError, match=message):
            llm.generate("w5 w42", params)


OLD = ["<|endoftext|>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the"]


def older(folder: Path, name: str | None, merges: bool = True, **settings: object) -> Path:
    """Write the files that slow tokenizers have."""
    (folder / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 300}))
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(OLD)}))
    if merges:
        (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    chosen = {"tokenizer_class": name, **settings} if name else settings
    (folder / "tokenizer_config.json").write_text(json.dumps(chosen))
    return folder


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer"])
def test_a_vocabulary_and_merges_are_converted(tmp_path: Path, name: str) -> None:
    settings = {"bos_token": "<s>", "add_bos_token": True, "eos_token": "</s>"}
    folder = older(tmp_path, name, **settings, added_tokens_decoder={"261": USER})
    ours, theirs = ours_of(folder), theirs_of(folder)
    for text in ("the theme", "a<|user|>b</s>", "größe 🤗"):
        for special in (False, True):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special=special) == ids
    assert ours.encode("the<|user|>", add_special=False) == [260, 261]
    assert (ours.bos_id, ours.eos_ids) == (theirs.bos_token_id, (2,))
    assert ours.special_ids == {
        token for token, entry in theirs.added_tokens_decoder.items() if entry.special
    }


@pytest.mark.parametrize(
    ("name", "merges", "fault"),
    [
        ("LlamaTokenizer", True, "LlamaTokenizer does not read it"),
        ("GPT2Tokenizer", False, r"merges\.txt is missing"),
        (None, True, ".*"),
    ],
)
def test_what_transformers_cannot_convert_is_refused(
    tmp_path: Path, name: str | None, merges: bool, fault: str
) -> None:
    message = (
        rf"holds no tokenizer\.json, and transformers cannot convert vocab\.json: {fault}; name "
        r"the right tokenizer_class in tokenizer_config\.json, or save the tokenizer as"
    )
    with pytest.raises(ModelError, match=message) as caught:
        ours_of(older(tmp_path, name, merges))
    assert "\n" not in str(caught.value)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    monkeypatch.setattr("outrider.loaders.hf_tokenizer.find_spec", lambda _: None)
    message = r"converting tokenizer\.model needs: pip install sentencepiece protobuf$"
    with pytest.raises(ModelError, match=message):
        ours_of(tmp_path)
