"""The GGUF header: every value type, and every way a file can be damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_files import llama_tensors, write_gguf
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.kernels.weights import BLOCK_FORMATS, RawWeight
from outrider.loaders.gguf_reader import FORMATS, GgufFile
from outrider.loaders.smollm2 import smollm2_path
from outrider.types.errors import ModelError


def test_smollm2_equals_the_gguf_library() -> None:
    file = GgufFile(smollm2_path())
    reader = GGUFReader(smollm2_path())
    assert len(reader.tensors) == len(file.tensors)
    for tensor in reader.tensors:
        entry = file.tensors[tensor.name]
        assert entry.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert entry.offset == tensor.data_offset
        stored = file.data(tensor.name).view(torch.uint8).reshape(-1).numpy()
        assert np.array_equal(stored, tensor.data.reshape(-1).view(np.uint8))
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert file.metadata[key] == field.contents()


def write_values(path: Path, version: int = 3) -> dict[str, object]:
    """Write one value of every type; return them as they should be read."""
    values: dict[str, tuple[GGUFValueType, object]] = {
        "u8": (GGUFValueType.UINT8, 200),
        "i8": (GGUFValueType.INT8, -7),
        "u16": (GGUFValueType.UINT16, 60000),
        "i16": (GGUFValueType.INT16, -30000),
        "u32": (GGUFValueType.UINT32, 4_000_000_000),
        "i32": (GGUFValueType.INT32, -2_000_000_000),
        "f32": (GGUFValueType.FLOAT32, 0.5),
        "bool": (GGUFValueType.BOOL, True),
        "text": (GGUFValueType.STRING, "größe 🤗"),
        "u64": (GGUFValueType.UINT64, 2**63),
        "i64": (GGUFValueType.INT64, -(2**62)),
        "f64": (GGUFValueType.FLOAT64, 0.1),
        "ints": (GGUFValueType.ARRAY, [1, 2, 3]),
        "texts": (GGUFValueType.ARRAY, ["a", "", "🤗"]),
        "bools": (GGUFValueType.ARRAY, [True, False]),
        "floats": (GGUFValueType.ARRAY, [0.5, -2.0]),
    }
    writer = GGUFWriter(path, "llama")
    for name, (kind, value) in values.items():
        writer.add_key_value(name, value, kind)
    writer.add_tensor("t", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:
        data = bytearray(path.read_bytes())
        data[4:8] = struct.pack("<I", version)
        path.write_bytes(data)
    return {"general.architecture": "llama", **{k: v for k, (_, v) in values.items()}}


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type(tmp_path: Path, version: int) -> None:
    path = tmp_path / "v.gguf"
    values = write_values(path, version)
    file = GgufFile(path)
    assert file.metadata == values
    assert isinstance(file.metadata["bool"], bool)
    assert torch.equal(file.data("t"), torch.arange(6.0).view(2, 3))
    assert file.tensors["t"].format == "F32"


def pair(name: str, kind: int, payload: bytes) -> bytes:
    key = name.encode()
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + payload


def header(pairs: list[bytes], tensors: list[bytes] | None = None, version: int = 3) -> bytes:
    """A hand-made file without tensor data."""
    directory = tensors or []
    counts = struct.pack("<IQQ", version, len(directory), len(pairs))
    return b"GGUF" + counts + b"".join(pairs) + b"".join(directory)


def entry(name: str, sizes: list[int], kind: int = 0, offset: int = 0) -> bytes:
    key = name.encode()
    sizes_bytes = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return struct.pack("<Q", len(key)) + key + sizes_bytes + struct.pack("<IQ", kind, offset)


def message(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        GgufFile(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 300
    return text


def test_nested_arrays(tmp_path: Path) -> None:
    inner = struct.pack("<IQ2B", 0, 2, 5, 6)
    path = tmp_path / "n.gguf"
    path.write_bytes(header([pair("x", 9, struct.pack("<IQ", 9, 2) + inner + inner)]))
    assert GgufFile(path).metadata["x"] == [[5, 6], [5, 6]]
    deep = struct.pack("<IQ", 9, 1) * 9 + inner
    assert "nests arrays deeper than 4" in message(tmp_path, header([pair("x", 9, deep)]))


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    write_values(path)
    whole = path.read_bytes()
    file = GgufFile(path)
    end = file.tensors["t"].offset + file.tensors["t"].nbytes
    seen = set()
    for size in range(end):
        text = message(tmp_path, whole[:size])
        seen.add(text.split(": ")[-1].split(" needs")[0])
        assert "it is empty" in text or f"the file ends at byte {size}" in text
    for what in ("the magic number", "the version", "the tensor count", "the metadata count"):
        assert what in seen
    assert {"metadata of 17 keys", "metadata 'texts'", "metadata key 14"} <= seen
    assert {"a directory of 1 tensors", "tensor t", "data of tensor t"} <= seen


def read_all(path: Path) -> str:
    """Read a file and every tensor of it; return the error it gives, empty if none."""
    try:
        file = GgufFile(path)
    except ModelError as error:
        return str(error)
    for name, found in file.tensors.items():
        if found.format is not None:
            file.data(name)
    return ""


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_flipped_bytes_give_a_file_or_one_line(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "flip.gguf"
    write_values(path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 2, 9, 127, 255]))
    path.write_bytes(whole)
    assert "\n" not in read_all(path)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "not a GGUF file: it is empty"),
        (b"PK\x03\x04" * 20, "not a GGUF file: begins with b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1 is not supported"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "(a big-endian file) is not supported"),
        (header([])[:16] + struct.pack("<Q", 2**60), "metadata of"),
        (header([pair("x", 13, b"")]), "has value type 13, which does not exist"),
        (
            header([pair("x", 8, struct.pack("<Q", 2**63))]),
            "metadata 'x' needs 9223372036854775808",
        ),
        (header([pair("x", 9, struct.pack("<IQ", 8, 2**61))]), "metadata 'x' needs"),
        (header([pair("x", 9, struct.pack("<IQ", 4, 2**62))]), "metadata 'x' needs"),
        (header([pair("x", 9, struct.pack("<IQ", 77, 1))]), "has element type 77"),
        (header([pair("x", 8, struct.pack("<Q", 2) + b"\xff\xfe")]), "metadata 'x' before byte"),
        (header([pair("x", 0, b"1"), pair("x", 0, b"1")]), "metadata key 'x' before byte"),
        (header([], [entry("t", [])]), "tensor t before byte 37 has 0 dimensions, not 1 to 4"),
        (header([], [entry("t", [1] * 5)]), "has 5 dimensions, not 1 to 4"),
        (header([], [entry("t", [3, 0])]), "has an empty dimension in [3, 0]"),
        (header([], [entry("t", [33], 2)]), "rows of 33, not a multiple of Q4_0's 32"),
        (header([], [entry("t", [2**62, 2**62])]), "data of tensor t needs"),
        (header([], [entry("t", [1], 0, 7)]), "starts at 7, not a multiple of 32"),
        (header([], [entry("t", [1], 0, 2**63)]), "data of tensor t needs 4 bytes at byte"),
        (header([], [entry("t", [1]), entry("t", [1])]), "tensor t before byte"),
        (
            header([pair("general.alignment", 4, struct.pack("<I", 0))]),
            "field general.alignment must be a multiple of 8, not 0",
        ),
    ],
)
def test_hostile_headers(tmp_path: Path, data: bytes, part: str) -> None:
    if b"t" in data and "dimensions" in part:
        data += b"\0" * 64
    assert part in message(tmp_path, data)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf: no such file"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(ModelError, match="must be a file, not a folder"):
        GgufFile(tmp_path)


def test_other_alignments(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path, llama_tensors(), extra=lambda writer: writer.add_custom_alignment(64))
    file = GgufFile(path)
    assert all(found.offset % 64 == 0 for found in file.tensors.values())
    wanted = llama_tensors()["model.norm.weight"]
    assert torch.equal(file.data("output_norm.weight"), wanted)


@pytest.mark.parametrize("label", sorted(FORMATS.values()))
def test_tensor_formats_round_trip(tmp_path: Path, label: str) -> None:
    """Every format: what the gguf library wrote is what RawWeight gives back."""
    kind = GGMLQuantizationType[label]
    random = np.random.default_rng(0)
    values = random.standard_normal((6, 512), dtype=np.float32)
    if label.endswith("_K"):  # the library reads these formats but does not write them
        block, size = BLOCK_FORMATS[label]
        data = random.integers(0, 256, (6, 512 // block * size), dtype=np.uint8)
        for at in {"Q4_K": (1, 3), "Q5_K": (1, 3), "Q6_K": (size - 1,)}[label]:
            data[:, at::size] = 0x2C  # keeps the half-precision scales finite
    else:
        data = quantize(values, kind)
    writer = GGUFWriter(tmp_path / "q.gguf", "llama")
    writer.add_tensor("t", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(tmp_path / "q.gguf")
    found = file.tensors["t"]
    assert (found.shape, found.format) == ((6, 512), label)
    weight = RawWeight("t", found.shape, label, file.data("t"))
    wanted = torch.from_numpy(dequantize(data, kind))
    assert torch.isfinite(wanted).all()
    assert torch.equal(weight.float(), wanted)
    assert weight.nbytes == data.nbytes
    order = torch.tensor([5, 0, 3])
    assert torch.equal(weight.rows(order).float(), wanted[order])
