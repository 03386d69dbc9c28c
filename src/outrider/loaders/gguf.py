"""Checkpoints in one GGUF file: weights, configuration, tokenizer and chat template."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Final

import torch

from outrider.config.model import ModelConfig
from outrider.kernels.tensors import span
from outrider.kernels.weights import RawWeight
from outrider.loaders.checkpoint import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    Checkpoint,
    tensor_shapes,
)
from outrider.loaders.fields import Fields
from outrider.loaders.gguf_config import ROPE_FACTORS, metadata_fields, read_config
from outrider.loaders.gguf_reader import FORMATS, GgufFile, type_name
from outrider.loaders.safetensors import shape_error
from outrider.text.gguf_tokenizer import GgufVocabulary, build_tokenizer
from outrider.text.tokenizer import SpecialTokens, Tokenizer
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

#: Pre-tokenizers whose models begin a text with a token unless the file says otherwise.
BEGINNING: Final = ("llama-bpe", "llama3", "llama-v3", "falcon3", "tekken")


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
    pairs = span(0, heads * head_dim).view(heads, head_dim // 2, 2)
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
        self.config = read_config(self._file)
        self._stored = self._map_names()
        for name, shape in tensor_shapes(self.config).items():
            self._check(name, shape)

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
    def _tokenizer(self) -> Tokenizer:
        return read_tokenizer(self._file, self.config)

    def close(self) -> None:
        """Nothing is held open: the mapping lives as long as a weight of it."""


def read_tokenizer(file: GgufFile, config: ModelConfig) -> Tokenizer:
    """Return the tokenizer of a file.

    Raises:
        ModelError: it is missing, of an unknown kind, or has more tokens than the model.
    """
    fields = metadata_fields(file)
    vocabulary = _vocabulary(fields, config.bos_id)
    if len(vocabulary.tokens) > config.vocab_size:
        raise ModelError(
            f"{file.source}: field tokenizer.ggml.tokens has {len(vocabulary.tokens)} entries, "
            f"but the embedding has {config.vocab_size} rows"
        )
    named: dict[str, str] = {}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = fields.integer(f"tokenizer.ggml.{key}_token_id", None)
        if token is not None and 0 <= token < len(vocabulary.tokens):
            named[f"{role}_token"] = vocabulary.tokens[token]
    special = SpecialTokens(
        bos_id=config.bos_id,
        eos_ids=config.eos_ids,
        named=named,
        chat_template=fields.string("tokenizer.chat_template", None),
    )
    return Tokenizer(build_tokenizer(vocabulary), file.source, special)


def _vocabulary(fields: Fields, bos_id: int | None) -> GgufVocabulary:
    """Return the tokenizer fields of a file."""
    model = fields.string("tokenizer.ggml.model")
    pre = fields.string("tokenizer.ggml.pre", "default")
    begins = model == "llama" or pre in BEGINNING
    add_bos = fields.boolean("tokenizer.ggml.add_bos_token", begins and bos_id is not None)
    add_eos = fields.boolean("tokenizer.ggml.add_eos_token", False)
    return GgufVocabulary(
        source=fields.source,
        model=model,
        tokens=fields.strings("tokenizer.ggml.tokens"),
        pre=pre,
        token_types=fields.integers("tokenizer.ggml.token_type", ()),
        merges=fields.strings("tokenizer.ggml.merges", ()),
        scores=fields.numbers("tokenizer.ggml.scores", ()),
        prefix=(fields.integer("tokenizer.ggml.bos_token_id"),) if add_bos else (),
        suffix=(fields.integer("tokenizer.ggml.eos_token_id"),) if add_eos else (),
        unk_id=fields.integer("tokenizer.ggml.unknown_token_id", None),
        space_prefix=fields.boolean("tokenizer.ggml.add_space_prefix", True),
    )
