"""Opens a model by what a user types."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from outrider.loaders.checkpoint import Checkpoint
from outrider.loaders.files import existing_file, kind_of, user_path
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.hf_config import CONFIG
from outrider.loaders.hub import GGUF_SUFFIX, fetch_folder, fetch_gguf, is_hub_id, split_hub_id
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.loaders.safetensors import TensorFolder
from outrider.loaders.smollm2 import smollm2_path
from outrider.types.errors import ModelError
from outrider.types.progress import Progress, silent

SMOLLM2: Final = "smollm2"


def open_model(spec: str, progress: Progress = silent) -> Checkpoint:
    """Open a model.

    Args:
        spec: "smollm2"; a folder with config.json, safetensors and a tokenizer; a ``.gguf`` file;
            ``org/name`` on the Hugging Face hub; or ``org/name:file.gguf`` for one file of it. A
            file or folder that exists wins over a hub id.
        progress: told about bytes while a model is downloaded.

    Raises:
        ModelError: there is no such model, or it cannot be loaded.
    """
    if spec == SMOLLM2:
        return GgufCheckpoint(smollm2_path())
    path = user_path(spec)
    kind = kind_of(path) if spec else None
    if kind == "a folder":
        return HuggingFaceCheckpoint(path)
    if kind == "a file":
        return _open_file(path)
    if kind is not None:
        raise ModelError(f"{path}: must be a folder or a {GGUF_SUFFIX} file, not {kind}")
    repository, file = split_hub_id(spec)
    if not is_hub_id(repository) or repository.endswith(GGUF_SUFFIX):
        named = spec if spec.strip() else repr(spec)
        raise ModelError(
            f"{named}: no such file or folder; use {SMOLLM2}, a folder, a {GGUF_SUFFIX} file or "
            "org/name on the Hugging Face hub"
        )
    if file is not None:
        return GgufCheckpoint(fetch_gguf(repository, file, progress))
    folder = fetch_folder(repository, progress)
    if not existing_file(folder / CONFIG):
        raise ModelError(
            f"{spec}: holds no {CONFIG}; for a GGUF file of it use {spec}:FILE{GGUF_SUFFIX}"
        )
    return HuggingFaceCheckpoint(folder)


def _open_file(path: Path) -> Checkpoint:
    """Open a GGUF file, whatever it is called; point to the folder for the parts of one."""
    if path.suffix in (".safetensors", ".json"):
        raise ModelError(f"{path}: is one file of a checkpoint; name the folder {path.parent}")
    return GgufCheckpoint(path)


def open_tensors(folder: Path) -> TensorFolder:
    """Open the tensors and the configuration of a folder that need not hold a whole model.

    Raises:
        ModelError: it holds no safetensors file, or a damaged one.
    """
    return TensorFolder(folder)
