"""Checkpoints in a Hugging Face folder: config.json, safetensors, tokenizer, chat template."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Final

from outrider.kernels.weights import RawWeight
from outrider.loaders.checkpoint import Checkpoint
from outrider.loaders.hf_config import read_config
from outrider.loaders.hf_tokenizer import read_tokenizer
from outrider.loaders.reconcile import reconcile
from outrider.loaders.safetensors import TensorFolder
from outrider.text.tokenizer import Tokenizer

_LOG: Final = logging.getLogger("outrider")


class HuggingFaceCheckpoint(Checkpoint):
    """A model in a folder. Names, shapes, formats and configuration are checked on opening."""

    def __init__(self, path: Path) -> None:
        """Open a folder; where its files disagree, one warning says what is done.

        Raises:
            ModelError: a file is missing or damaged, or the model is not supported.
        """
        self.path = path
        self.source = str(path)
        self._tensors = TensorFolder(path)
        reconciled = reconcile(read_config(path), self._tensors)
        self.config = reconciled.config
        self._stored = reconciled.stored
        if reconciled.notes:
            _LOG.warning(
                "%s: config.json and the tensors disagree: %s", path, "; ".join(reconciled.notes)
            )

    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._stored.keys()

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        """Return a tensor in its stored format; see the base class."""
        return self._tensors.tensor(self._stored.get(name, name), shape)

    def _format(self, name: str) -> str:
        return self._tensors.format(self._stored[name])

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; see the base class."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self.path, self.config)

    def close(self) -> None:
        """Nothing is held open: the mapping lives as long as a weight of it."""
