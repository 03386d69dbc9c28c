"""The space that Llama's tokenizers put before a text, and settings that leave it out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer_files import ours_of, sentence_piece, theirs_of, write
from tokenizers import Tokenizer as Backend


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
