"""Stores a finished drafter in another form.

The command is ``python -m outrider.train.export.convert FOLDER OUT``.

A drafter whose training state is still there can also be stored anew from its master weights:
``outrider train`` again with another ``--storage``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final, get_args

from torch import Tensor

from outrider.kernels.weights import BLOCK_FORMATS, FLOAT_FORMATS, RawWeight
from outrider.loaders.fields import read_json
from outrider.loaders.safetensors import TensorFolder
from outrider.train.command import faults_in_one_line
from outrider.train.config import Storage
from outrider.train.export.checkpoint import storage_fields, stored
from outrider.train.files import make_folder, save_atomically
from outrider.types.errors import DrafterError, ModelError

QUANTIZATION: Final = "outrider_quantization"


def convert(folder: Path, out: Path, storage: Storage) -> None:
    """Write a checkpoint again with its matrices in another form.

    Args:
        folder: a drafter's checkpoint, whoever trained it, in floats or Q8_0.
        out: where to write, another folder.
        storage: the new form of the matrices.

    Raises:
        DrafterError: the folder cannot be read, is stored in 4 bits already, does not tell how its
            bytes are to be read, or is ``out``; or ``out`` cannot be written to.
    """
    if out.resolve() == folder.resolve():
        raise DrafterError(f"{out}: is the checkpoint itself; name another folder to write to")
    path = folder / "config.json"
    try:
        found = read_json(path).sub(QUANTIZATION).string("format", None)
        if found not in (None, "Q8_0"):
            raise DrafterError(f"{folder}: is stored as {found}; convert what it was made from")
        source = TensorFolder(folder)
        tensors = {
            name: _converted(source, name, found, storage) for name in sorted(source.names())
        }
    except ModelError as error:
        raise DrafterError(str(error)) from None
    fields = json.loads(path.read_text()) | storage_fields(storage)
    if storage == "bf16":
        fields.pop(QUANTIZATION, None)
    make_folder(out)
    save_atomically(tensors, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def _floats(source: TensorFolder, name: str, declared: str | None) -> Tensor:
    """A matrix in blocks as float32; DrafterError if they are of no declared form, or cannot be."""
    if declared is None:
        raise DrafterError(
            f"{source.source}: {name} is stored in bytes, but config.json has no {QUANTIZATION} "
            "to tell their form; convert what it was made from"
        )
    rows, width = source.shape(name)
    block, nbytes = BLOCK_FORMATS[declared]
    if width % nbytes or not width:
        raise DrafterError(
            f"{source.source}: {name} has {width} bytes a row, which are no blocks of {declared}, "
            "though config.json says so; convert what it was made from"
        )
    shape = (rows, width // nbytes * block)
    return RawWeight(name, shape, declared, source.integers(name)).float()


def _converted(source: TensorFolder, name: str, declared: str | None, storage: Storage) -> Tensor:
    """A tensor in its new form; integers, such as d2t, stay as they are."""
    label = source.format(name)
    if label == "U8" and len(source.shape(name)) == 2:
        return stored(name, _floats(source, name, declared), storage)
    if label in FLOAT_FORMATS:
        return stored(name, source.tensor(name).float(), storage)
    return source.integers(name)


def main() -> None:
    """Parse the command line and convert."""
    parser = argparse.ArgumentParser(
        prog="python -m outrider.train.export.convert", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="a drafter's checkpoint, in floats or Q8_0")
    parser.add_argument("out", type=Path, help="folder of the new one")
    parser.add_argument(
        "--storage",
        choices=get_args(Storage),
        default="q4_1",
        help="form of the matrices; q4_1, the default, drafts fastest and accepts about 1%% less",
    )
    options = parser.parse_args()
    with faults_in_one_line():
        convert(options.folder, options.out, options.storage)


if __name__ == "__main__":
    main()
