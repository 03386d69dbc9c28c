"""The target as plain batched torch, for features, teacher logits and generation.

Shapes: B conversations, S positions, H hidden, h query heads, g key/value heads, d head width,
F intermediate, V vocabulary, t taps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from outrider.config.model import ModelConfig
from outrider.models.layers import RawLayer, TensorSource, target_layers
from outrider.models.rotary import rotary_table
from outrider.types.progress import Progress, silent


class LayerTensors(NamedTuple):
    """Weights of one decoder layer; the fields are those of ``models.layers.RawLayer``."""

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class HeadShape(NamedTuple):
    """Heads of an attention layer and the epsilon of its norms."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float


class Angles(NamedTuple):
    """Cosine and sine of positions, float32, broadcastable against [.., heads, S, d / 2]."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class TargetStates:
    """What one pass over whole conversations leaves.

    Attributes:
        taps: tapped residual outputs side by side [B, S, t H].
        hidden: states after the final norm [B, S, H].
    """

    taps: Tensor
    hidden: Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension (arXiv 1910.07467)."""
    return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps)


def logits32(x: Tensor, head: Tensor) -> Tensor:
    """float32 logits [n, V] of states [n, H], not rounded to the dtype of the weights.

    Half-precision logits tie often, and ties would be broken otherwise than by the engine.
    """
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, head.t(), out_dtype=torch.float32)
    return F.linear(x.float(), head.float())


def rotate(x: Tensor, angles: Angles) -> Tensor:
    """Rotate [.., heads, S, d] by position (arXiv 2104.09864); i pairs with i + d / 2."""
    low, high = x.float().chunk(2, -1)
    cos, sin = angles
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).to(x.dtype)


def project(
    x: Tensor, w: LayerTensors, shape: HeadShape, angles: Angles
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [B, h, S, d], keys and values [B, g, S, d] of states [B, S, H]."""
    b, s, _ = x.shape
    flat = F.linear(rms_norm(x, w.attn_norm, shape.eps), w.qkv, w.qkv_bias)
    heads = flat.view(b, s, -1, shape.head_dim).transpose(1, 2)
    q, k, v = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], 1)
    if w.q_norm is not None:
        q = rms_norm(q, w.q_norm, shape.eps)
    if w.k_norm is not None:
        k = rms_norm(k, w.k_norm, shape.eps)
    return rotate(q, angles), rotate(k, angles), v


def finish(x: Tensor, mixed: Tensor, w: LayerTensors, eps: float) -> Tensor:
    """Output projection, SwiGLU feed-forward layer (arXiv 2002.05202), both residual additions."""
    x = x + F.linear(mixed, w.out, w.out_bias)
    gate, up = F.linear(rms_norm(x, w.mlp_norm, eps), w.gate_up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w.down)


def decoder_layer(
    x: Tensor, w: LayerTensors, shape: HeadShape, angles: Angles, mask: Tensor | None
) -> Tensor:
    """One causal layer over whole conversations [B, S, H]; ``mask`` replaces plain causality."""
    q, k, v = project(x, w, shape, angles)
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=shape.heads != shape.kv_heads
    )
    return finish(x, mixed.transpose(1, 2).flatten(2), w, shape.eps)


LayerForward = Callable[[Tensor, LayerTensors, HeadShape, Angles, Tensor | None], Tensor]


class TorchTarget:
    """A dense target with all weights in one dtype on one device.

    Attributes:
        config: its shape.
        shape: its heads.
        layers: weights by layer.
        embedding, head: [V, H]; norm: [H].
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: TensorSource,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress = silent,
    ) -> None:
        """Load every weight of a checkpoint."""
        self.config = config
        self.device = device
        self.dtype = dtype
        self.shape = HeadShape(
            config.num_heads, config.num_kv_heads, config.head_dim, config.rms_eps
        )
        self._tensors = tensors
        self.layers: list[LayerTensors] = []
        reader = target_layers(config, tensors)
        for index in range(config.num_layers):
            self.layers.append(self._layer(reader.read(f"model.layers.{index}.")))
            progress("Loading the target", index + 1, config.num_layers)
        table = (config.vocab_size, config.hidden_size)
        self.norm = self._weight("model.norm.weight", config.hidden_size)
        self.embedding = self._weight("model.embed_tokens.weight", *table)
        self.head = self.embedding if config.tied else self._weight("lm_head.weight", *table)
        self._forward: LayerForward = decoder_layer
        self._angles: Angles | None = None

    def compile(self) -> None:
        """Fuse the layers with torch.compile; all layers share one compiled program."""
        self._forward = torch.compile(decoder_layer, dynamic=False)

    def _weight(self, name: str, *shape: int) -> Tensor:
        return self._moved(self._tensors(name, shape).float())

    def _moved(self, weight: Tensor) -> Tensor:
        return weight.to(self.device, self.dtype)

    def _layer(self, raw: RawLayer) -> LayerTensors:
        return LayerTensors(
            attn_norm=self._moved(raw.attn_norm),
            qkv=torch.cat([self._moved(weight.float()) for weight in raw.qkv]),
            qkv_bias=None if raw.qkv_bias is None else self._moved(raw.qkv_bias),
            q_norm=None if raw.q_norm is None else self._moved(raw.q_norm),
            k_norm=None if raw.k_norm is None else self._moved(raw.k_norm),
            out=self._moved(raw.out.float()),
            out_bias=None if raw.out_bias is None else self._moved(raw.out_bias),
            mlp_norm=self._moved(raw.mlp_norm),
            gate_up=torch.cat([self._moved(weight.float()) for weight in raw.gate_up]),
            down=self._moved(raw.down.float()),
        )

    def angles(self, positions: int) -> Angles:
        """Angles of positions 0 .. positions - 1, [positions, d / 2]."""
        if self._angles is None or len(self._angles.cos) < positions:
            table = rotary_table(self.config.rotary, self.config.head_dim, positions)
            self._angles = Angles(table.cos.to(self.device), table.sin.to(self.device))
        return Angles(self._angles.cos[:positions], self._angles.sin[:positions])

    @torch.no_grad()
    def states(
        self, ids: Tensor, taps: Sequence[int], *, tapped_only: bool = False
    ) -> TargetStates:
        """Run whole conversations, int64 [B, S], causally from position 0.

        ``tapped_only`` stops after the last tap; ``hidden`` is then that layer's and means nothing.
        """
        x = F.embedding(ids, self.embedding)
        angles = self.angles(ids.shape[1])
        tapped = {-1: x} if -1 in taps else {}
        count = max(taps, default=-1) + 1 if tapped_only else len(self.layers)
        for index, weights in enumerate(self.layers[:count]):
            mask = _window_mask(ids.shape[1], self.config.windows[index], self.device)
            x = self._forward(x, weights, self.shape, angles, mask)
            if index in taps:
                tapped[index] = x
        hidden = rms_norm(x, self.norm, self.config.rms_eps)
        features = torch.cat([tapped[tap] for tap in taps], -1) if taps else x[..., :0]
        return TargetStates(features, hidden)

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final-norm states, [.., H] to [.., V]."""
        return F.linear(hidden, self.head)


def _window_mask(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Causal mask [S, S] of a sliding window, None if the window cuts nothing."""
    if window is None or window >= length:
        return None
    at = torch.arange(length, dtype=torch.int64, device=device)
    distance = at[:, None] - at[None]
    return (distance >= 0) & (distance < window)
