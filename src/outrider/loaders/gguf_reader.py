"""The header of a GGUF file: metadata and tensor directory, and views of its tensor data.

Layout (little-endian): magic "GGUF", version, tensor count, pair count; then the pairs (key, value
type, value); then the directory (name, sizes fastest first, type, offset); then, aligned, the data.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from outrider.kernels.weights import BLOCK_FORMATS, FLOAT_FORMATS
from outrider.loaders.files import require_file
from outrider.types.errors import ModelError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
MAX_DIMENSIONS: Final = 4
MAX_NESTING: Final = 4

#: Value type number to its struct code, for the values of fixed size.
SCALARS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING: Final = 8
ARRAY: Final = 9

#: Tensor type number to format name, for the formats that can be loaded.
FORMATS: Final = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    30: "BF16",
}

Value = int | float | bool | str | list["Value"]


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        shape: logical shape, outputs first (the file stores it in the opposite order).
        format: a key of FLOAT_FORMATS or BLOCK_FORMATS, or None for a type that cannot be loaded.
        type_id: the file's number for the format.
        offset: first byte, counted from the start of the file.
        nbytes: size of the data; 0 for a type that cannot be loaded.
    """

    shape: tuple[int, ...]
    format: str | None
    type_id: int
    offset: int
    nbytes: int


def type_name(type_id: int) -> str:
    """Name of a tensor type number, as the format's authors spell it."""
    from gguf import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(type_id).name)
    except ValueError:
        return f"number {type_id}"


class _Cursor:
    """Reads values one after another; every read is checked against the end of the file."""

    def __init__(self, source: str, data: mmap.mmap) -> None:
        self.source = source
        self.data = data
        self.size = len(data)
        self.position = 0

    def need(self, count: int, what: str) -> None:
        """Raise ModelError unless ``count`` more bytes are there for ``what``."""
        if self.position + count > self.size:
            raise ModelError(
                f"{self.source}: truncated or damaged GGUF file: {what} needs {count} bytes at "
                f"byte {self.position}, but the file ends at byte {self.size}"
            )

    def integer(self, code: str, what: str) -> int:
        """Read one integer of a struct code."""
        layout = struct.Struct("<" + code)
        self.need(layout.size, what)
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def string(self, what: str) -> str:
        """Read one string: a 64-bit length and UTF-8 bytes."""
        return self.strings(1, what)[0]

    def strings(self, count: int, what: str) -> list[str]:
        """Read ``count`` strings."""
        self.need(8 * count, what)
        data, size, position = self.data, self.size, self.position
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                (length,) = length_at(data, position)
                start = position + 8
                position = start + length
                if position > size:
                    self.position = start
                    self.need(length, what)
                strings.append(data[start:position].decode())
        except struct.error:
            self.position = position
            self.need(8, what)
        except UnicodeDecodeError:
            raise self.damaged(what, "is not UTF-8") from None
        self.position = position
        return strings

    def damaged(self, what: str, fault: str) -> ModelError:
        """Return the error for a value that cannot be right."""
        return ModelError(
            f"{self.source}: damaged GGUF file: {what} before byte {self.position} {fault}"
        )


def _read_value(cursor: _Cursor, kind: int, what: str, depth: int = 0) -> Value:
    """Read one metadata value of a type number."""
    if kind == STRING:
        return cursor.string(what)
    if kind == ARRAY:
        return _read_array(cursor, what, depth)
    if kind not in SCALARS:
        raise cursor.damaged(what, f"has value type {kind}, which does not exist")
    layout = struct.Struct("<" + SCALARS[kind])
    cursor.need(layout.size, what)
    value: Value = layout.unpack_from(cursor.data, cursor.position)[0]
    cursor.position += layout.size
    return value


def _read_array(cursor: _Cursor, what: str, depth: int) -> Value:
    """Read an array: element type, 64-bit count, elements."""
    kind = cursor.integer("I", what)
    count = cursor.integer("Q", what)
    if kind == STRING:
        return list(cursor.strings(count, what))
    if kind == ARRAY:
        if depth == MAX_NESTING:
            raise cursor.damaged(what, f"nests arrays deeper than {MAX_NESTING}")
        cursor.need(12 * count, what)
        return [_read_array(cursor, what, depth + 1) for _ in range(count)]
    if kind not in SCALARS:
        raise cursor.damaged(what, f"has element type {kind}, which does not exist")
    width = struct.calcsize("<" + SCALARS[kind])
    cursor.need(width * count, what)
    values = struct.unpack_from(f"<{count}{SCALARS[kind]}", cursor.data, cursor.position)
    cursor.position += width * count
    return list(values)


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; return the tensor count and the pair count."""
    cursor.need(len(MAGIC), "the magic number")
    magic = cursor.data[: len(MAGIC)]
    if magic != MAGIC:
        raise ModelError(f"{cursor.source}: not a GGUF file: begins with {magic!r}, not {MAGIC!r}")
    cursor.position = len(MAGIC)
    version = cursor.integer("I", "the version")
    if version not in VERSIONS:
        wanted = " and ".join(str(number) for number in VERSIONS)
        note = " (a big-endian file)" if version & 0xFFFF == 0 else ""
        raise ModelError(
            f"{cursor.source}: GGUF version {version}{note} is not supported; supported are "
            f"{wanted}, little-endian"
        )
    tensors = cursor.integer("Q", "the tensor count")
    return tensors, cursor.integer("Q", "the metadata count")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    """Read ``count`` pairs of key and value."""
    cursor.need(13 * count, f"metadata of {count} keys")
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}")
        if key in metadata:
            raise cursor.damaged(f"metadata key {key!r}", "occurs twice")
        what = f"metadata {key!r}"
        kind = cursor.integer("I", what)
        metadata[key] = _read_value(cursor, kind, what)
    return metadata


def _entry(cursor: _Cursor, name: str, sizes: list[int], type_id: int, offset: int) -> TensorEntry:
    """Check one directory entry; its offset is still relative to the data section."""
    what = f"tensor {name}"
    if not all(sizes):
        raise cursor.damaged(what, f"has an empty dimension in {sizes}")
    shape = tuple(reversed(sizes))
    label = FORMATS.get(type_id)
    if label is None:
        return TensorEntry(shape, None, type_id, offset, 0)
    if label in FLOAT_FORMATS:
        nbytes = math.prod(sizes) * FLOAT_FORMATS[label].itemsize
        return TensorEntry(shape, label, type_id, offset, nbytes)
    block, block_bytes = BLOCK_FORMATS[label]
    if sizes[0] % block:
        raise cursor.damaged(what, f"has rows of {sizes[0]}, not a multiple of {label}'s {block}")
    nbytes = math.prod(sizes) // block * block_bytes
    return TensorEntry(shape, label, type_id, offset, nbytes)


def _read_directory(cursor: _Cursor, count: int) -> dict[str, TensorEntry]:
    """Read ``count`` tensor entries."""
    cursor.need(32 * count, f"a directory of {count} tensors")
    entries: dict[str, TensorEntry] = {}
    for index in range(count):
        name = cursor.string(f"name of tensor {index}")
        what = f"tensor {name}"
        if name in entries:
            raise cursor.damaged(what, "occurs twice")
        dimensions = cursor.integer("I", what)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise cursor.damaged(what, f"has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")
        sizes = [cursor.integer("Q", what) for _ in range(dimensions)]
        type_id = cursor.integer("I", what)
        entries[name] = _entry(cursor, name, sizes, type_id, cursor.integer("Q", what))
    return entries


def _alignment(cursor: _Cursor, metadata: dict[str, Value]) -> int:
    """Alignment of the data section and of every tensor, in bytes."""
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
        raise ModelError(
            f"{cursor.source}: field general.alignment must be a multiple of 8, not {alignment!r}"
        )
    return alignment


def _place(
    cursor: _Cursor, entries: dict[str, TensorEntry], alignment: int
) -> dict[str, TensorEntry]:
    """Make offsets absolute and check that every tensor lies inside the file, aligned."""
    start = -(-cursor.position // alignment) * alignment
    placed: dict[str, TensorEntry] = {}
    for name, entry in entries.items():
        if entry.offset % alignment:
            raise cursor.damaged(
                f"tensor {name}", f"starts at {entry.offset}, not a multiple of {alignment}"
            )
        cursor.position = start + entry.offset
        cursor.need(entry.nbytes, f"data of tensor {name}")
        placed[name] = TensorEntry(
            entry.shape, entry.format, entry.type_id, cursor.position, entry.nbytes
        )
    return placed


class GgufFile:
    """One GGUF file. The header is read at once; tensor data stays in the mapped file.

    Attributes:
        source: the path as text, for messages.
        metadata: key to value; arrays are lists.
        tensors: tensor name to where it lies.
        size: bytes of the file.
    """

    def __init__(self, path: Path) -> None:
        """Read and check the header.

        Raises:
            ModelError: the file is missing, empty, truncated, not GGUF, or its header is damaged;
                the message says which byte is wrong.
        """
        self.source = str(path)
        require_file(path)
        try:
            with path.open("rb") as stream:
                self.size = stream.seek(0, 2)
                if self.size == 0:
                    raise ModelError(f"{path}: not a GGUF file: it is empty")
                with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    self._read(_Cursor(self.source, data))
            # A private mapping: pages are shared with the file until written, and never written.
            self._data = torch.from_file(
                self.source, shared=False, size=self.size, dtype=torch.uint8, device="cpu"
            )
        except FileNotFoundError:
            raise ModelError(f"{path}: no such file") from None
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from None

    def _read(self, cursor: _Cursor) -> None:
        num_tensors, num_pairs = _read_preamble(cursor)
        self.metadata = _read_metadata(cursor, num_pairs)
        entries = _read_directory(cursor, num_tensors)
        self.tensors = _place(cursor, entries, _alignment(cursor, self.metadata))

    def data(self, name: str) -> torch.Tensor:
        """Stored data of a tensor, without a copy; it stays valid after this object is gone.

        Returns:
            For float formats a tensor of the logical shape in that dtype; for block formats uint8
            [rows, bytes per row], where the rows of a tensor of three or more dimensions follow
            each other.
        """
        entry = self.tensors[name]
        if entry.format is None:
            label = type_name(entry.type_id)
            raise ModelError(f"{self.source}: tensor {name} is stored as {label}")
        flat = self._data[entry.offset : entry.offset + entry.nbytes]
        if entry.format in FLOAT_FORMATS:
            return flat.view(FLOAT_FORMATS[entry.format]).view(entry.shape)
        return flat.view(math.prod(entry.shape[:-1]), -1)
