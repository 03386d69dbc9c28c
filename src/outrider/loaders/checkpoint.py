"""What every checkpoint offers, whatever its files look like."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
from functools import cached_property
from types import TracebackType
from typing import Final, Self

import torch

from outrider.config.model import ModelConfig
from outrider.kernels.weights import RawWeight
from outrider.text.tokenizer import Tokenizer

EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
HEAD: Final = "lm_head.weight"

SAMPLED_BYTES: Final = 4096


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape, outputs first, of every tensor of a dense decoder.

    The canonical names are those of Hugging Face checkpoints. A tied model has no
    ``lm_head.weight``.
    """
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_heads * head, config.num_kv_heads * head
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, hidden),
        FINAL_NORM: (hidden,),
    }
    if not config.tied:
        shapes[HEAD] = (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.qkv_bias:
        layer["self_attn.q_proj.bias"] = (queries,)
        layer["self_attn.k_proj.bias"] = layer["self_attn.v_proj.bias"] = (keys,)
    if config.o_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.qk_norm:
        layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (head,)
    for index in range(config.num_layers):
        shapes.update({f"model.layers.{index}.{name}": shape for name, shape in layer.items()})
    return shapes


class Checkpoint(ABC):
    """A model on disk: its configuration, its weights as stored, and its tokenizer.

    Opening checks names, shapes and formats of all tensors, so that a checkpoint that opens can be
    loaded. Weights are views of mapped files and stay valid after ``close``.

    Attributes:
        source: the file or folder, for messages.
        config: the model's shape.
    """

    source: str
    config: ModelConfig

    @abstractmethod
    def names(self) -> Collection[str]:
        """Canonical names of all tensors of the model."""

    @abstractmethod
    def tensor(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        """Return a tensor in its stored format.

        Args:
            name: canonical name.
            shape: the shape it must have, outputs first.

        Raises:
            ModelError: there is no such tensor or it has another shape; the message names the
                file, the tensor and both shapes.
        """

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, built on the first call.

        Raises:
            ModelError: it is missing, cannot be used, or has more tokens than the model.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget the files."""

    @abstractmethod
    def _format(self, name: str) -> str:
        """Stored format of a tensor by its canonical name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @cached_property
    def quantization(self) -> str:
        """Formats and how many tensors have each, most common first: "Q4_1 (210), F32 (61)"."""
        counts = Counter(self._format(name) for name in self.names())
        return ", ".join(f"{label} ({count})" for label, count in counts.most_common())

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        shapes = tensor_shapes(self.config)
        return sum(self.tensor(name, shapes[name]).nbytes for name in self.names())

    @cached_property
    def signature(self) -> str:
        """16 hexadecimal digits that tell which model this is.

        A hash of the configuration, of every tensor's name and format, and of the first bytes of
        the embedding and of the final norm, so that two trainings of one architecture differ.
        """
        digest = hashlib.sha256(repr(self.config).encode())
        for name in sorted(self.names()):
            digest.update(f"{name} {self._format(name)}\n".encode())
        shapes = tensor_shapes(self.config)
        for name in (EMBEDDING, FINAL_NORM):
            stored = self.tensor(name, shapes[name]).data.reshape(-1)
            head = stored[: SAMPLED_BYTES // stored.element_size()].contiguous()
            digest.update(bytes(head.view(torch.uint8).numpy()))
        return digest.hexdigest()[:16]
