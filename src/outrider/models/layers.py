"""Pre-norm decoder layers of a checkpoint: what their tensors are called, read and prepared.

Targets, block drafters and multi-token-prediction heads spell their layers alike, as Hugging Face's
Llama does, and differ in biases, per-head norms and how norm weights are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.config.decoder import DecoderShape
from outrider.config.model import ModelConfig
from outrider.kernels.table import Kernels
from outrider.kernels.values import LayerWeights
from outrider.kernels.weights import RawWeight

#: Fetches a weight by its Hugging Face name; raises if it is missing or not of this shape.
TensorSource = Callable[[str, tuple[int, ...]], RawWeight]


@dataclass(frozen=True)
class LayerFormat:
    """What the layers of a checkpoint have.

    Attributes:
        qkv_bias: the query, key and value projections have biases.
        o_bias: the output projection has a bias.
        qk_norm: queries and keys have per-head norms.
        zero_centered: norm weights are stored as their difference from 1.
    """

    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    zero_centered: bool = False


@dataclass(frozen=True)
class RawLayer:
    """One layer as its checkpoint stores it; norms and biases are float32.

    Attributes:
        attn_norm, mlp_norm: norm weights [H] before attention and the feed-forward layer.
        qkv: query [h d, H], key and value [g d, H] projections.
        qkv_bias: their biases side by side [(h + 2 g) d], or None.
        q_norm, k_norm: per-head norm weights [d], or None.
        out: output projection [H, h d].
        out_bias: its bias [H], or None.
        gate_up: gate and up projections [F, H].
        down: down projection [H, F].
    """

    attn_norm: Tensor
    qkv: tuple[RawWeight, ...]
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: RawWeight
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: tuple[RawWeight, ...]
    down: RawWeight

    @property
    def quantized(self) -> bool:
        """Whether any matrix is stored in blocks of integers."""
        return any(weight.quantized for weight in (*self.qkv, self.out, *self.gate_up, self.down))

    def prepare(
        self, kernels: Kernels, window: int | None = None, causal: bool = True
    ) -> LayerWeights:
        """Prepare the layer; ``window`` and ``causal`` as in ``LayerWeights``."""
        return LayerWeights(
            attn_norm=self.attn_norm,
            qkv=kernels.prepare(self.qkv, self.qkv_bias),
            q_norm=self.q_norm,
            k_norm=self.k_norm,
            out=kernels.prepare([self.out], self.out_bias),
            mlp_norm=self.mlp_norm,
            gate_up=kernels.prepare(self.gate_up),
            down=kernels.prepare([self.down]),
            window=window,
            causal=causal,
        )


class LayerReader:
    """Reads the layers of one checkpoint."""

    def __init__(self, shape: DecoderShape, form: LayerFormat, tensors: TensorSource) -> None:
        """Read layers of a shape and a format from ``tensors``."""
        self._shape = shape
        self._form = form
        self._tensors = tensors

    def read(self, prefix: str) -> RawLayer:
        """Read the layer whose tensor names begin with ``prefix``."""
        s, form, tensors = self._shape, self._form, self._tensors
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        query, keys = s.num_heads * s.head_dim, s.num_kv_heads * s.head_dim
        parts = (("q_proj", query), ("k_proj", keys), ("v_proj", keys))
        biases = [self.vector(f"{attention}{n}.bias", size) for n, size in parts if form.qkv_bias]
        wide = (s.intermediate_size, s.hidden_size)
        return RawLayer(
            qkv_bias=torch.cat(biases) if biases else None,
            qkv=tuple(
                tensors(f"{attention}{n}.weight", (size, s.hidden_size)) for n, size in parts
            ),
            gate_up=tuple(tensors(f"{mlp}{name}_proj.weight", wide) for name in ("gate", "up")),
            down=tensors(mlp + "down_proj.weight", wide[::-1]),
            out=tensors(attention + "o_proj.weight", (s.hidden_size, query)),
            out_bias=self.vector(attention + "o_proj.bias", s.hidden_size) if form.o_bias else None,
            attn_norm=self.norm(prefix + "input_layernorm.weight", s.hidden_size),
            q_norm=self.norm(attention + "q_norm.weight", s.head_dim) if form.qk_norm else None,
            k_norm=self.norm(attention + "k_norm.weight", s.head_dim) if form.qk_norm else None,
            mlp_norm=self.norm(prefix + "post_attention_layernorm.weight", s.hidden_size),
        )

    def norm(self, name: str, size: int) -> Tensor:
        """Read a norm's weight, float32 [size]."""
        weight = self.vector(name, size)
        return weight + 1.0 if self._form.zero_centered else weight

    def vector(self, name: str, size: int) -> Tensor:
        """Read a vector as it is stored, float32 [size]."""
        return self._tensors(name, (size,)).float().contiguous()


def target_layers(config: ModelConfig, tensors: TensorSource) -> LayerReader:
    """Reads the layers of a target."""
    form = LayerFormat(config.qkv_bias, config.o_bias, config.qk_norm)
    return LayerReader(config, form, tensors)
