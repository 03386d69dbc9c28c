"""Folders and files that a run writes: each is whole, or as it was before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from outrider.types.errors import DrafterError


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there, and check that files can be written into it.

    Raises:
        DrafterError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DrafterError(f"{folder}: cannot be written to: {reason}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which then takes the place of ``path``: that one is whole or as before."""
    partial = path.with_suffix(".partial")
    yield partial
    os.replace(partial, path)


def save_atomically(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file that is either whole or absent."""
    with replacing(path) as partial:
        save_file(tensors, partial)
        partial.chmod(0o644)
