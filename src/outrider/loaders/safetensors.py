"""Tensors of a folder with one or several safetensors files, mapped into memory and read lazily."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from outrider.kernels.weights import FLOAT_FORMATS, RawWeight
from outrider.loaders.fields import Fields, read_json, show
from outrider.loaders.files import check_folder, existing_file, existing_folder, require_file
from outrider.loaders.hub import FILES
from outrider.types.errors import ModelError

logger = logging.getLogger(__name__)

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
INTEGERS: Final = ("I64", "I32", "I16", "I8", "U8", "BOOL")


def show_shape(shape: tuple[int, ...]) -> str:
    """Return a shape for a message, as in ``[576, 1536]``."""
    return "[" + ", ".join(str(size) for size in shape) + "]"


def shape_error(
    source: str, name: str, found: tuple[int, ...], expected: tuple[int, ...]
) -> ModelError:
    """Return the error for a tensor of another shape than the configuration asks for."""
    return ModelError(
        f"{source}: tensor {name} has shape {show_shape(found)}, expected {show_shape(expected)}"
    )


class _File:
    """One safetensors file, mapped into memory; its header is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        require_file(path)
        opened: Any
        try:
            opened = safe_open(path, framework="pt", device="cpu")
        except FileNotFoundError:
            raise ModelError(f"{path}: no such file") from None
        except (SafetensorError, OSError, ValueError) as error:
            detail = " ".join(str(error).split())
            raise ModelError(f"{path}: not a whole safetensors file: {detail}") from None
        self._handle: Any = opened
        names: list[str] = self._handle.keys()
        self.names = frozenset(names)

    def entry(self, name: str) -> tuple[tuple[int, ...], str]:
        """Shape and dtype label ("F32", "BF16", "I64", ...) of a tensor, without reading it."""
        view = self._handle.get_slice(name)
        return tuple(int(size) for size in view.get_shape()), str(view.get_dtype())

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor, a view of the mapped file."""
        tensor: torch.Tensor = self._handle.get_tensor(name)
        return tensor


class TensorFolder:
    """The tensors of a checkpoint folder, single or sharded, as they are stored.

    Data stays in the mapped file until it is used; tensors stay valid after this object is gone.

    Attributes:
        path: the folder.
        source: the folder as text, for messages.
    """

    def __init__(self, path: Path) -> None:
        """Open every file and check that the index, if there is one, tells the truth.

        Raises:
            ModelError: no safetensors file, a missing, truncated or foreign one, or an index that
                names a tensor its file does not hold.
        """
        self.path = path
        self.source = str(path)
        check_folder(path, FILES)
        self._files = _open_files(path)

    @cached_property
    def config(self) -> Fields:
        """The fields of ``config.json``; ModelError if it is missing or not JSON."""
        return read_json(self.path / "config.json")

    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it; ModelError if there is no such tensor."""
        return self._file(name).entry(name)[0]

    def format(self, name: str) -> str:
        """Stored type of a tensor ("F32", "BF16", "I64", ...); ModelError if there is none."""
        return self._file(name).entry(name)[1]

    def check(self, name: str, shape: tuple[int, ...] | None = None) -> None:
        """Check a float tensor without reading it.

        Raises:
            ModelError: there is no such tensor, its shape is not ``shape``, or it is not float32,
                float16 or bfloat16.
        """
        file = self._checked(name, shape)
        label = file.entry(name)[1]
        if label not in FLOAT_FORMATS:
            raise ModelError(
                f"{file.path}: tensor {name} is stored as {label}; "
                f"supported are {', '.join(FLOAT_FORMATS)}"
            )

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> RawWeight:
        """Return a float tensor in its stored format; errors are those of ``check``."""
        self.check(name, shape)
        file = self._files[name]
        found, label = file.entry(name)
        return RawWeight(name, found, label, file.tensor(name))

    def integers(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Return an integer or boolean tensor in its stored type.

        Raises:
            ModelError: there is no such tensor, its shape is not ``shape``, or it holds floats.
        """
        file = self._checked(name, shape)
        label = file.entry(name)[1]
        if label not in INTEGERS:
            raise ModelError(
                f"{file.path}: tensor {name} is stored as {label}; "
                f"an integer or boolean type is needed ({', '.join(INTEGERS)})"
            )
        return file.tensor(name)

    def _file(self, name: str) -> _File:
        file = self._files.get(name)
        if file is None:
            raise ModelError(f"{self.source}: tensor {name} is missing")
        return file

    def _checked(self, name: str, shape: tuple[int, ...] | None) -> _File:
        file = self._file(name)
        found = file.entry(name)[0]
        if shape is not None and found != shape:
            raise shape_error(str(file.path), name, found, shape)
        return file


def _open_files(folder: Path) -> dict[str, _File]:
    """Map each tensor name to the file that holds it."""
    if existing_file(folder / INDEX):
        return _open_index(folder)
    single = folder / SINGLE
    paths = [single] if existing_file(single) else sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(_nothing_found(folder))
    owners: dict[str, _File] = {}
    for path in paths:
        file = _File(path)
        for name in file.names:
            if name in owners:
                raise ModelError(f"{path}: tensor {name} is also in {owners[name].path.name}")
            owners[name] = file
    return owners


def _nothing_found(folder: Path) -> str:
    if not existing_folder(folder):
        return f"{folder}: no such folder"
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    if pickles:
        return f"{folder}: holds {pickles[0]} but no safetensors file; convert it to safetensors"
    return f"{folder}: holds no safetensors file"


def _open_index(folder: Path) -> dict[str, _File]:
    """Open the files that the index names; each tensor must be where the index says."""
    index = read_json(folder / INDEX)
    weight_map = index.sub("weight_map")
    if not weight_map.names():
        raise index.error("weight_map", "an object from tensor names to file names")
    files: dict[str, _File] = {}
    owners: dict[str, _File] = {}
    for name in sorted(weight_map.names()):
        part = weight_map.string(name)
        if part not in files:
            if Path(part).name != part:
                raise weight_map.error(name, "the name of a file in the same folder")
            files[part] = _File(folder / part)
        if name not in files[part].names:
            raise ModelError(
                f"{folder / part}: tensor {name} is missing, though {INDEX} places it here"
            )
        owners[name] = files[part]
    extra = sorted(name for file in files.values() for name in file.names - owners.keys())
    if extra:
        logger.warning("%s does not list %d tensors: %s", INDEX, len(extra), show(extra))
    return owners
