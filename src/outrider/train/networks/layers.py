"""Trainable decoder layers. Parameter names are those of checkpoints.

Shapes: B conversations, M rows, H hidden, h query heads, g key/value heads, d head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from outrider.train.networks.target import (
    Angles,
    LayerTensors,
    rms_norm,
    rotate,
)
from outrider.types.errors import DrafterError


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """A product in the dtype of ``x``, whatever the dtype of the master weight."""
    bias = None if layer.bias is None else layer.bias.to(x.dtype)
    return F.linear(x, layer.weight.to(x.dtype), bias)


class Norm(nn.Module):
    """RMS norm over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=torch.float32))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normed ``x``."""
        return rms_norm(x, self.weight, self._eps)


@dataclass(frozen=True)
class LayerShape:
    """Widths of one decoder layer."""

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float


class AttentionWeights(nn.Module):
    """Projections of one layer's attention, and its head norms if it has any."""

    def __init__(self, shape: LayerShape, *, head_norms: bool) -> None:
        super().__init__()
        width, head = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(width, shape.num_heads * head, bias=False, dtype=torch.float32)
        self.k_proj = nn.Linear(width, shape.num_kv_heads * head, bias=False, dtype=torch.float32)
        self.v_proj = nn.Linear(width, shape.num_kv_heads * head, bias=False, dtype=torch.float32)
        self.o_proj = nn.Linear(shape.num_heads * head, width, bias=False, dtype=torch.float32)
        self.q_norm = Norm(head, shape.eps) if head_norms else nn.Identity()
        self.k_norm = Norm(head, shape.eps) if head_norms else nn.Identity()
        self._head = head

    def _heads(self, flat: Tensor) -> Tensor:
        return flat.view(*flat.shape[:2], -1, self._head).transpose(1, 2)

    def queries(self, x: Tensor, angles: Angles) -> Tensor:
        """[B, M, H] to [B, h, M, d], normed and rotated."""
        return rotate(self.q_norm(self._heads(linear(x, self.q_proj))), angles)

    def keys_values(self, x: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """[B, M, H] to keys, normed and rotated, and values, [B, g, M, d]."""
        keys = rotate(self.k_norm(self._heads(linear(x, self.k_proj))), angles)
        return keys, self._heads(linear(x, self.v_proj))


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(
            shape.hidden_size, shape.intermediate_size, bias=False, dtype=torch.float32
        )
        self.up_proj = nn.Linear(
            shape.hidden_size, shape.intermediate_size, bias=False, dtype=torch.float32
        )
        self.down_proj = nn.Linear(
            shape.intermediate_size, shape.hidden_size, bias=False, dtype=torch.float32
        )

    def forward(self, x: Tensor) -> Tensor:
        """``down(silu(gate(x)) * up(x))``."""
        return linear(F.silu(linear(x, self.gate_proj)) * linear(x, self.up_proj), self.down_proj)


class LayerModule(nn.Module):
    """Weights of one pre-norm layer."""

    def __init__(self, shape: LayerShape, *, head_norms: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.eps)
        self.self_attn = AttentionWeights(shape, head_norms=head_norms)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.eps)
        self.mlp = FeedForward(shape)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Output projection, feed-forward layer and both residual additions.

        ``x`` is [B, M, H], ``mixed`` the attention's output [B, h, M, d].
        """
        x = x + linear(mixed.transpose(1, 2).flatten(2), self.self_attn.o_proj)
        normed: Tensor = self.post_attention_layernorm(x)
        residual: Tensor = self.mlp(normed)
        return x + residual


def init_layers(module: nn.Module, layers: int) -> None:
    """Normal weights of width 0.02 in every product; those that end a residual branch smaller."""
    for name, child in module.named_modules():
        if isinstance(child, nn.Linear) and "markov" not in name:
            ends = name.endswith(("o_proj", "down_proj"))
            nn.init.normal_(child.weight, std=0.02 / math.sqrt(2 * layers) if ends else 0.02)
            if child.bias is not None:
                nn.init.zeros_(child.bias)


@torch.no_grad()
def copy_weight(weight: Tensor, source: Tensor) -> None:
    """Overwrite a parameter."""
    weight.copy_(source.to(weight.dtype))


def copy_layer(layer: LayerModule, source: LayerTensors) -> None:
    """Overwrite a layer's products and norms with those of a decoder layer of the same shape.

    Raises:
        DrafterError: the shapes differ.
    """
    attn, mlp = layer.self_attn, layer.mlp
    parts = [attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight]
    q, k, v = torch.split(source.qkv, [len(part) for part in parts])
    gate, up = source.gate_up.chunk(2)
    pairs = [
        *zip(parts, (q, k, v), strict=True),
        (attn.o_proj.weight, source.out),
        (mlp.gate_proj.weight, gate),
        (mlp.up_proj.weight, up),
        (mlp.down_proj.weight, source.down),
        (layer.input_layernorm.weight, source.attn_norm),
        (layer.post_attention_layernorm.weight, source.mlp_norm),
    ]
    for weight, value in pairs:
        if weight.shape != value.shape:
            raise DrafterError("layers of the target's shape are needed to start from its weights")
        copy_weight(weight, value)
