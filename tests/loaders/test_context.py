"""Context lengths, as vLLM derives them, and rotary parameters in two spellings at once."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import LLAMA, llama_tensors, write_gguf
from gguf import GGUFWriter

from outrider.config.rotary import RotaryConfig
from outrider.loaders.fields import Fields
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.hf_config import read_config
from outrider.loaders.rotary import read_rotary
from outrider.types.errors import ModelError

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def context(folder: Path, tokenizer: dict[str, Any] | None = None, **changes: object) -> int:
    """Longest context of the tiny llama (512 positions) after changes to its configuration."""
    (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    if tokenizer is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return read_config(folder).max_position


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 512),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 2048),
        ({"rope_scaling": {"type": "linear", "factor": 2.5}}, 1280),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 9.0}}, 1024),
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 128}}, 512),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 2048),
        (
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 256,
                }
            },
            1024,
        ),
        (
            {
                "rope_scaling": {"rope_type": "yarn", "factor": 3.0},
                "original_max_position_embeddings": 100,
            },
            300,
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 128}},
            512,
        ),
        ({"max_sequence_length": 100}, 100),
        ({"max_sequence_length": 100, "seq_length": 90, "n_positions": 4096}, 90),
        ({"max_sequence_length": 100, "rope_scaling": {"type": "linear", "factor": 4}}, 400),
        ({"model_max_length": 700, "max_sequence_length": 100}, 700),
        ({"sliding_window": 64, "model_type": "mistral", "architectures": None}, 512),
        ({"rope_scaling": {"factor": 4.0}}, 512),
    ],
)
def test_scaling_and_other_bounds(tmp_path: Path, changes: dict[str, Any], wanted: int) -> None:
    assert context(tmp_path, **changes) == wanted


@pytest.mark.parametrize(
    ("bound", "scaling", "wanted"),
    [
        (300, None, 300),
        (1024, None, 512),
        (1000000000000000019884624838656, None, 512),
        (1e30, None, 512),
        (None, None, 512),
        (300, {"rope_type": "linear", "factor": 2.0}, 600),
        (300, {"rope_type": "yarn", "factor": 2.0}, 1024),
    ],
)
def test_the_tokenizer_bounds_a_context_before_it_is_scaled(
    tmp_path: Path, bound: object, scaling: object, wanted: int
) -> None:
    assert context(tmp_path, {"model_max_length": bound}, rope_scaling=scaling) == wanted


def test_bounds_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model_max_length must be a finite number above 0, not"):
        context(tmp_path, {"model_max_length": -3})
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(ModelError, match="field seq_len must be an integer of at least 1, not 0"):
        context(tmp_path, seq_len=0)
    with pytest.raises(ModelError, match="the scaled context has at most 268435456 tokens"):
        context(tmp_path, rope_scaling={"type": "linear", "factor": 1e9})


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, 512),
        ({"type": "linear", "factor": 4.0}, 2048),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 256}, 1024),
        ({"type": "yarn", "factor": 4.0}, 2048),
        ({"type": "none", "factor": 4.0}, 512),
        ({"type": "linear", "factor": 0.0}, 512),
        ({"factor": 0.0}, 512),
        ({"factor": 2.0}, 1024),
    ],
)
def test_a_gguf_file_allows_what_its_folder_does(
    tmp_path: Path, values: dict[str, Any], wanted: int
) -> None:
    def scaling(writer: GGUFWriter) -> None:
        for key, value in values.items():
            name = f"llama.rope.scaling.{key}"
            if isinstance(value, str):
                writer.add_string(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            else:
                writer.add_float32(name, value)

    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=scaling)
    assert GgufCheckpoint(path).config.max_position == wanted


@pytest.mark.parametrize(
    ("values", "wanted", "warning"),
    [
        (
            {
                "rope_theta": 7.0,
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
            },
            RotaryConfig(7.0, "linear", 2.0),
            "rope_scaling and rope_parameters differ; rope_scaling is used",
        ),
        (
            {"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            RotaryConfig(10000.0, "linear", 2.0),
            None,
        ),
        (
            {
                "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 2.0},
            },
            RotaryConfig(10000.0, "linear", 2.0),
            None,
        ),
        (
            {"rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
            RotaryConfig(5.0),
            None,
        ),
        ({"rope_theta": 7.0, "rope_parameters": {"rope_type": "default"}}, RotaryConfig(7.0), None),
        (
            {"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}},
            RotaryConfig(10000.0, "linear", 2.0),
            "linear by rope_type and dynamic by type; linear is used",
        ),
        ({"rope_scaling": {"factor": 2.0}}, RotaryConfig(10000.0), "a factor but no rope_type"),
    ],
)
def test_two_spellings_at_once(
    values: dict[str, Any],
    wanted: RotaryConfig,
    warning: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="outrider"):
        assert read_rotary(Fields("config.json", values), 512) == wanted
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (warning is not None)
    assert warning is None or warning in said[0]
