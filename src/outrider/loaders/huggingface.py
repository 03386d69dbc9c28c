"""Checkpoints in a Hugging Face folder: config.json, safetensors, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Final

from outrider.kernels.weights import RawWeight
from outrider.loaders.checkpoint import HEAD, Checkpoint, tensor_shapes
from outrider.loaders.hf_config import read_config
from outrider.loaders.hf_tokenizer import read_tokenizer
from outrider.loaders.safetensors import TensorFolder
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import ModelError

#: End of the names of tensors that old exports hold and that are computed here.
COMPUTED: Final = "rotary_emb.inv_freq"


class HuggingFaceCheckpoint(Checkpoint):
    """A model in a folder. Names, shapes, formats and configuration are checked on opening."""

    def __init__(self, path: Path) -> None:
        """Open a folder.

        Raises:
            ModelError: a file is missing or damaged, or the model is not supported.
        """
        self.path = path
        self.source = str(path)
        self._tensors = TensorFolder(path)
        self.config = read_config(path)
        self._check_names()
        self._names = tuple(tensor_shapes(self.config))
        for name, shape in tensor_shapes(self.config).items():
            self._tensors.check(name, shape)

    def _check_names(self) -> None:
        """Refuse tensors that the model has no place for: they would change its output."""
        expected = tensor_shapes(self.config)
        if not self.config.tied and HEAD not in self._tensors.names():
            raise ModelError(
                f"{self.source}: tensor {HEAD} is missing, though tie_word_embeddings is not true"
            )
        extra = sorted(
            name
            for name in self._tensors.names() - expected.keys() - {HEAD}
            if not name.endswith(COMPUTED)
        )
        if extra:
            more = f" and {len(extra) - 1} more have" if len(extra) > 1 else " has"
            raise ModelError(
                f"{self.source}: tensor {extra[0]}{more} no place in a "
                f"{self.config.architecture} decoder of {self.config.num_layers} layers"
            )

    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._names

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        """Return a tensor in its stored format; see the base class."""
        return self._tensors.tensor(name, shape)

    def _format(self, name: str) -> str:
        return self._tensors.format(name)

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; see the base class."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self.path, self.config)

    def close(self) -> None:
        """Nothing is held open: the mapping lives as long as a weight of it."""
