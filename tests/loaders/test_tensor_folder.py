"""Safetensors folders: single, sharded, damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoint_files import write_folder
from safetensors.torch import save_file

from outrider.loaders.safetensors import TensorFolder
from outrider.types.errors import ModelError

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.arange(4.0).half(),
    "c": torch.arange(4.0).bfloat16(),
    "ids": torch.tensor([3, 1, 2]),
    "mask": torch.tensor([True, False]),
    "bytes": torch.arange(8, dtype=torch.uint8).view(2, 4),
    "wide": torch.arange(4.0).double(),
    "fp8": torch.arange(4.0).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_come_back_as_stored(tmp_path: Path, shards: int) -> None:
    folder = TensorFolder(write_folder(tmp_path / "m", {"x": 1}, TENSORS, shards))
    assert folder.names() == TENSORS.keys()
    for name, label in (("a", "F32"), ("b", "F16"), ("c", "BF16")):
        weight = folder.tensor(name, tuple(TENSORS[name].shape))
        assert (weight.name, weight.format) == (name, label)
        assert weight.shape == tuple(TENSORS[name].shape)
        assert torch.equal(weight.data, TENSORS[name])
    for name in ("ids", "mask", "bytes"):
        found = folder.integers(name, tuple(TENSORS[name].shape))
        assert found.dtype == TENSORS[name].dtype
        assert torch.equal(found, TENSORS[name])
    assert folder.config.integer("x") == 1
    assert folder.shape("a") == (2, 3)
    assert folder.format("bytes") == "U8"


def test_data_stays_in_the_mapped_file_and_outlives_the_folder(tmp_path: Path) -> None:
    folder = TensorFolder(write_folder(tmp_path / "m", {}, TENSORS))
    first, second = folder.tensor("a").data, folder.tensor("a").data
    assert first.data_ptr() == second.data_ptr()
    del folder
    assert torch.equal(first, TENSORS["a"])


def test_other_file_names_are_found_without_an_index(tmp_path: Path) -> None:
    save_file({"a": TENSORS["a"]}, tmp_path / "x.safetensors")
    save_file({"b": TENSORS["b"]}, tmp_path / "y.safetensors")
    assert TensorFolder(tmp_path).names() == {"a", "b"}
    save_file({"b": TENSORS["b"]}, tmp_path / "z.safetensors")
    with pytest.raises(ModelError, match=r"z\.safetensors: tensor b is also in y\.safetensors"):
        TensorFolder(tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("zz", None, "tensor zz is missing"),
        ("a", (3, 2), r"model\.safetensors: tensor a has shape \[2, 3\], expected \[3, 2\]"),
        ("a", (6,), r"tensor a has shape \[2, 3\], expected \[6\]"),
        ("wide", None, "tensor wide is stored as F64; supported are F32, F16, BF16"),
        ("fp8", None, "tensor fp8 is stored as F8_E4M3; supported are F32, F16, BF16"),
        ("ids", None, "tensor ids is stored as I64; supported are F32, F16, BF16"),
    ],
)
def test_tensor_faults(
    tmp_path: Path, name: str, shape: tuple[int, ...] | None, message: str
) -> None:
    folder = TensorFolder(write_folder(tmp_path / "m", {}, TENSORS))
    with pytest.raises(ModelError, match=f"^{tmp_path}/m.*{message}"):
        folder.tensor(name, shape)


def test_integers_refuse_floats(tmp_path: Path) -> None:
    folder = TensorFolder(write_folder(tmp_path / "m", {}, TENSORS))
    with pytest.raises(ModelError, match="tensor a is stored as F32; an integer or boolean"):
        folder.integers("a")


def test_truncated_at_every_part(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "m", {}, TENSORS) / "model.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    for size in (0, 4, 8, 8 + header // 2, 8 + header, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=f"^{path}: not a whole safetensors file: ") as caught:
            TensorFolder(path.parent)
        assert "\n" not in str(caught.value)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"GGUF" * 100)
    with pytest.raises(ModelError, match="not a whole safetensors file"):
        TensorFolder(tmp_path)
    path.unlink()
    with pytest.raises(ModelError, match="holds no safetensors file"):
        TensorFolder(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"holds pytorch_model\.bin but no safetensors file"):
        TensorFolder(tmp_path)
    with pytest.raises(ModelError, match="absent: no such folder"):
        TensorFolder(tmp_path / "absent")


def test_an_index_must_tell_the_truth(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", {}, TENSORS, shards=2)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]

    def rewritten(**changes: object) -> str:
        index.write_text(json.dumps({"weight_map": {**weight_map, **changes}}))
        with pytest.raises(ModelError) as caught:
            TensorFolder(folder)
        return str(caught.value)

    other = weight_map["a"]
    assert f"{other}: tensor ghost is missing, though" in rewritten(ghost=other)
    assert "no.safetensors: no such file" in rewritten(a="no.safetensors")
    assert "field weight_map.a must be the name of a file in the same folder" in rewritten(
        a="../m/" + other
    )
    assert "field weight_map.a must be a string, not 3" in rewritten(a=3)
    index.write_text("{}")
    with pytest.raises(ModelError, match="field weight_map is missing"):
        TensorFolder(folder)
