"""Checkpoints in one GGUF file: weights, configuration, tokenizer and chat template."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

import torch

from outrider.config.model import ModelConfig
from outrider.kernels.tensors import index_range
from outrider.kernels.weights import RawWeight
from outrider.loaders.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    Checkpoint,
    tensor_shapes,
)
from outrider.loaders.gguf_config import ROPE_FACTORS, metadata_fields, read_config
from outrider.loaders.gguf_reader import FORMATS, GgufFile, type_name
from outrider.loaders.gguf_tokenizer import GgufText, read_text
from outrider.loaders.safetensors import shape_error
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import ModelError

#: Names of the tensors outside the layers, and of those inside, both without ".weight" or ".bias".
OUTER: Final = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": HEAD,
}
INNER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_NAME: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def canonical_name(name: str) -> str | None:
    """Return the canonical name of a tensor of a GGUF file, None for a foreign one."""
    match = LAYER_NAME.fullmatch(name)
    if match is None:
        return OUTER.get(name)
    layer, part, kind = match.groups()
    inner = INNER.get(part)
    return None if inner is None else f"model.layers.{layer}.{inner}.{kind}"


def rotary_rows(heads: int, head_dim: int) -> torch.Tensor:
    """Return the row order that turns interleaved rotary pairs into halves.

    The order is int64 [heads * head_dim]. A llama file stores rows i and i + head_dim / 2 of each
    head, which are one pair, as rows 2i and 2i + 1.
    """
    pairs = index_range(0, heads * head_dim).view(heads, head_dim // 2, 2)
    return pairs.transpose(1, 2).reshape(-1)


class GgufCheckpoint(Checkpoint):
    """A model in one GGUF file. Names, shapes, formats and configuration are checked on opening.

    Weights keep their quantised format. In llama files the rows of the q and k projections are
    stored as interleaved rotary pairs; ``tensor`` returns them as halves, like every other format.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            ModelError: the file is damaged, or holds a model that is not supported.
        """
        self._file = GgufFile(path)
        self.source = str(path)
        config = read_config(self._file)
        self._rows = config.vocab_size
        self.config = self._with_special_tokens(config)
        self._stored = self._map_names()
        for name, shape in tensor_shapes(self.config).items():
            self._check(name, shape)

    def _with_special_tokens(self, config: ModelConfig) -> ModelConfig:
        """Add the special tokens; a file without a usable tokenizer has none."""
        try:
            special = self._text.special
        except ModelError:  # ``tokenizer`` raises it again
            return config
        return replace(config, eos_ids=special.eos_ids, bos_id=special.bos_id)

    def _map_names(self) -> dict[str, str]:
        """Return canonical to stored names; refuse tensors that the model has no place for."""
        expected = tensor_shapes(self.config)
        stored: dict[str, str] = {}
        for name, entry in self._file.tensors.items():
            if name == ROPE_FACTORS:
                continue
            canonical = canonical_name(name)
            if canonical is None or canonical not in expected:
                raise ModelError(
                    f"{self.source}: tensor {name} has no place in a {self.config.architecture} "
                    f"decoder of {self.config.num_layers} layers"
                )
            if entry.format is None:
                raise ModelError(
                    f"{self.source}: tensor {name} is stored as {type_name(entry.type_id)}; "
                    f"supported are {', '.join(FORMATS.values())}"
                )
            stored[canonical] = name
        return stored

    def _check(self, name: str, shape: tuple[int, ...]) -> str:
        """Return the stored name of a tensor after checking its shape."""
        stored = self._stored.get(name)
        if stored is None:
            raise ModelError(f"{self.source}: tensor {name} is missing")
        found = self._file.tensors[stored].shape
        if found != shape:
            raise shape_error(self.source, f"{name} ({stored})", found, shape)
        return stored

    def names(self) -> Collection[str]:
        """Canonical names of all tensors."""
        return self._stored.keys()

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        """Return a tensor in its stored format; see the base class."""
        stored = self._check(name, shape)
        weight = RawWeight(name, shape, self._format(name), self._file.data(stored))
        heads = self._interleaved_heads(name)
        if heads:
            return weight.rows(rotary_rows(heads, self.config.head_dim))
        return weight

    def _interleaved_heads(self, name: str) -> int:
        """Heads whose rotary pairs are stored interleaved in a tensor, 0 for any other tensor."""
        if self.config.architecture != "llama":
            return 0
        if ".q_proj." in name:
            return self.config.num_heads
        return self.config.num_kv_heads if ".k_proj." in name else 0

    def _format(self, name: str) -> str:
        label = self._file.tensors[self._stored[name]].format
        if label is None:  # opening refuses such a file
            raise ModelError(f"{self.source}: tensor {name} has no format")
        return label

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(self._file.tensors[stored].nbytes for stored in self._stored.values())

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; see the base class."""
        return self._tokenizer

    @cached_property
    def _text(self) -> GgufText:
        return read_text(metadata_fields(self._file), self._rows)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self._text.tokenizer()

    def close(self) -> None:
        """Nothing is held open: the mapping lives as long as a weight of it."""
