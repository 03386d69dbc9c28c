"""Folders whose class has rules of its own, which transformers knows."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_files import LLAMA
from tokenizer_files import byte_level, ours_of, sentence_piece, spaced, theirs_of, write

from outrider.types.errors import ModelError

TEXTS = ("the the", " the", "  the", "a<eos>the", "<bos>the", "<bos> the\n<eos>\nthe", "größe")


@pytest.mark.parametrize("scheme", [None, "first", "always"])
@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer"])
def test_no_space_goes_before_a_text_if_llamas_settings_say_so(
    tmp_path: Path, name: str, scheme: str | None
) -> None:
    settings = {"tokenizer_class": name, "add_prefix_space": False, "eos_token": "<eos>"}
    folder = write(tmp_path, spaced(scheme), {"tokenizer_config.json": settings})
    ours, theirs = ours_of(folder), theirs_of(folder)
    for text in TEXTS:
        ids = ours.encode(text, add_special=False)
        assert ids == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert ours.encode("the the", add_special=False) == [268, 269]


@pytest.mark.parametrize(("legacy", "after"), [(None, 268), (False, 268), (True, 269)])
def test_llamas_space_goes_before_the_text_and_after_markup_only_in_the_old_way(
    tmp_path: Path, legacy: bool | None, after: int
) -> None:
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        **({} if legacy is None else {"legacy": legacy}),
    }
    folder = write(tmp_path, sentence_piece(), {"tokenizer_config.json": settings})
    ours, theirs = ours_of(folder), theirs_of(folder)
    for text in TEXTS:
        ids = ours.encode(text, add_special=False)
        assert ids == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ids, skip_special=True) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.encode(" the", add_special=False) == [269]
    assert ours.encode("a<eos>the", add_special=False) == [259, 264, 2, after]


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "UnheardOfTokenizer", None])
def test_classes_without_rules_leave_the_space_as_the_tokenizer_has_it(
    tmp_path: Path, name: str | None
) -> None:
    settings = {"tokenizer_class": name, "add_prefix_space": False}
    folder = write(tmp_path, spaced(None), {"tokenizer_config.json": settings})
    wanted = theirs_of(folder).encode("the the", add_special_tokens=False)
    assert ours_of(folder).encode("the the", add_special=False) == wanted == [269, 269]


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "Qwen2Tokenizer", "CohereTokenizer"])
def test_a_space_goes_before_a_text_if_settings_of_byte_level_classes_say_so(
    tmp_path: Path, name: str
) -> None:
    settings = {"tokenizer_class": name, "add_prefix_space": True}
    folder = write(tmp_path, byte_level(), {"tokenizer_config.json": settings})
    wanted = theirs_of(folder).encode("the the", add_special_tokens=False)
    assert ours_of(folder).encode("the the", add_special=False) == wanted == [260, 260]


def test_a_class_that_transformers_cannot_build_leaves_the_tokenizer_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]},
    }
    folder = write(tmp_path, spaced(None), {"tokenizer_config.json": own})
    (folder / "own.py").write_text("raise SystemExit('run')")
    ours = ours_of(folder)
    assert ours.encode("the the", add_special=False) == [269, 269]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "transformers cannot build the tokenizer (" in record.getMessage()
    assert record.getMessage().endswith("tokenizer.json is taken as it is")
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("LlamaForCausalLM", "'LlamaForCausalLM' is no class of tokenizers"),
        (["LlamaTokenizer"], "['LlamaTokenizer'] is no class of tokenizers"),
        ("AutoTokenizer", "'AutoTokenizer' is no class of tokenizers"),
    ],
)
def test_a_name_of_no_tokenizer_is_not_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: object, fault: str
) -> None:
    folder = write(tmp_path, spaced(None), {"tokenizer_config.json": {"tokenizer_class": name}})
    assert ours_of(folder).encode("the the", add_special=False) == [269, 269]
    (record,) = caplog.records
    assert fault in record.getMessage()


def test_fields_of_the_model_that_transformers_refuses_have_no_part(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "LlamaTokenizer"}
    config = {**LLAMA, "vocab_size": 300, "torch_dtype": [1], "id2label": 7, "num_labels": "x"}
    folder = write(
        tmp_path,
        sentence_piece(),
        {"tokenizer_config.json": settings, "config.json": config},
    )
    assert ours_of(folder).encode("a<eos>the", add_special=False) == [259, 264, 2, 268]


def test_damaged_files_are_named_in_one_line(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": "no"}
    folder = write(tmp_path, sentence_piece(), {"tokenizer_config.json": settings})
    with pytest.raises(ModelError, match="add_prefix_space must be true or false, not 'no'"):
        ours_of(folder)
    settings["add_prefix_space"] = True  # type: ignore[assignment]
    settings["eos_token"] = 7  # type: ignore[assignment]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="field eos_token must be a token: text, or an object"):
        ours_of(folder)
    del settings["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer: EOF"):
        ours_of(folder)


def test_classes_without_rules_do_not_wait_for_transformers(tmp_path: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    folder = write(tmp_path, byte_level(), {"tokenizer_config.json": settings})
    code = (
        "import sys; from pathlib import Path\n"
        "from outrider.loaders.hf_config import read_config\n"
        "from outrider.loaders.hf_tokenizer import read_tokenizer\n"
        f"folder = Path({str(folder)!r}); read_tokenizer(folder, read_config(folder))\n"
        "print('transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
