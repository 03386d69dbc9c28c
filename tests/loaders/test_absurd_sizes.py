"""Sizes that no model has are refused by name, before any memory is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import LLAMA, llama_tensors, write_folder, write_gguf
from gguf import GGUFWriter

from outrider.config.rotary import RotaryConfig
from outrider.drafters.layouts import read_block_config, read_mtp_config
from outrider.loaders.fields import Fields
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.models.rotary import rotary_table
from outrider.types.errors import DrafterError, ModelError

HUGE = (2**31, 2**40, 2**63, 10**30)
COUNTS = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
NUMBERS: dict[str, tuple[str, ...]] = {
    "rope_theta": ("NaN", "Infinity", "1e400", "0", "-5", "1" + "0" * 400),
    "rms_norm_eps": ("NaN", "1e400", "0", "-1", "1e-300", "1e9", "1" + "0" * 400),
}


def refused(folder: Path, name: str, literal: str) -> str:
    """The message about the tiny llama whose field ``name`` is the JSON ``literal``."""
    write_folder(folder, LLAMA, llama_tensors())
    text = json.dumps({**LLAMA, name: "@"}).replace('"@"', literal)
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError) as caught:
        HuggingFaceCheckpoint(folder)
    return str(caught.value)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [*HUGE, 0, -1, -(2**63)])
def test_a_folder_with_absurd_counts(tmp_path: Path, name: str, value: int) -> None:
    message = refused(tmp_path, name, str(value))
    assert message.startswith(f"{tmp_path}/config.json: field {name} must be ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "literal"), [(name, text) for name, texts in NUMBERS.items() for text in texts]
)
def test_a_folder_with_absurd_numbers(tmp_path: Path, name: str, literal: str) -> None:
    message = refused(tmp_path, name, literal)
    assert message.startswith(f"{tmp_path}/config.json: field {name} must be a finite number ")
    assert len(message) < 300


@pytest.mark.parametrize("literal", ["0", "-4096", str(2**31), str(2**63), "4096.5", '"4096"'])
def test_absurd_windows(tmp_path: Path, literal: str) -> None:
    config = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    write_folder(tmp_path, config, llama_tensors())
    text = json.dumps({**config, "sliding_window": "@"}).replace('"@"', literal)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match="field sliding_window must be an integer of at least 1"):
        HuggingFaceCheckpoint(tmp_path)


def test_keys_of_a_token_that_no_cache_holds(tmp_path: Path) -> None:
    config = {**LLAMA, "num_hidden_layers": 4000, "head_dim": 1 << 16}
    folder = write_folder(tmp_path / "m", config, llama_tensors())
    with pytest.raises(ModelError, match="make 524288000 key values a token; at most 4194304"):
        HuggingFaceCheckpoint(folder)


def uint(key: str, value: int) -> Callable[[GGUFWriter], None]:
    def change(writer: GGUFWriter) -> None:
        del writer.kv_data[0][key]
        writer.add_uint64(key, value)

    return change


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
    ],
)
@pytest.mark.parametrize("value", [0, 2**31, 2**40, 2**63])
def test_a_file_with_absurd_counts(tmp_path: Path, key: str, value: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=uint(f"llama.{key}", value))
    with pytest.raises(ModelError, match=f"field llama.{key} must be ") as caught:
        GgufCheckpoint(path)
    assert "\n" not in str(caught.value)


def test_a_file_may_list_a_size_layer_by_layer(tmp_path: Path) -> None:
    def change(values: list[int]) -> Callable[[GGUFWriter], None]:
        def listed(writer: GGUFWriter) -> None:
            del writer.kv_data[0]["llama.attention.head_count_kv"]
            writer.add_array("llama.attention.head_count_kv", values)

        return listed

    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change([2, 2]))
    assert GgufCheckpoint(path).config.num_kv_heads == 2
    for wrong in ([2, 1], [2]):
        path = write_gguf(tmp_path / "n.gguf", llama_tensors(), extra=change(wrong))
        with pytest.raises(ModelError, match="head_count_kv must be the same in each of 2 layers"):
            GgufCheckpoint(path)


DRAFTER: dict[str, object] = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "num_target_layers": 8,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "block_size": 4,
    "mask_token_id": 3,
}


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "max_position_embeddings"])
@pytest.mark.parametrize("value", [*HUGE, 0, -1])
def test_a_drafter_with_absurd_counts(name: str, value: int) -> None:
    fields = Fields("config.json", {**DRAFTER, name: value})
    with pytest.raises((ModelError, DrafterError), match=name):
        read_block_config(fields, "dflash", learned_mask=False)
    if name != "num_hidden_layers":
        with pytest.raises((ModelError, DrafterError), match=name):
            read_mtp_config(fields)


def test_more_heads_than_width_leave_none_for_a_drafter(tmp_path: Path) -> None:
    values = {**DRAFTER, "hidden_size": 3, "num_key_value_heads": 4}
    del values["head_dim"]
    with pytest.raises((ModelError, DrafterError), match="head_dim"):
        read_block_config(Fields("config.json", values), "dflash", learned_mask=False)


def test_a_rotary_row_does_not_depend_on_the_length_of_its_table() -> None:
    for rotary in (RotaryConfig(), RotaryConfig(5e5, "yarn", 4.0, 64)):
        long = rotary_table(rotary, 10, 300)
        for length in (0, 1, 7, 33, 299):
            short = rotary_table(rotary, 10, length)
            assert short.cos.equal(long.cos[:length])
            assert short.sin.equal(long.sin[:length])
