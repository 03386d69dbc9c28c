"""The trainable DFlash and DSpark drafter. Parameter names are those of its checkpoint.

Shapes: B conversations, S positions, N blocks a conversation, R rows a block, K drafts a block,
M = N R block rows a conversation, D draft vocabulary, H hidden, t taps, r Markov rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from outrider.config.drafter import DrafterConfig
from outrider.models.rotary import rotary_table
from outrider.train.fitting.batches import block_mask, tiled_block_mask
from outrider.train.networks.target import (
    Angles,
    LayerTensors,
    TargetStates,
    TorchTarget,
    rms_norm,
    rotate,
)
from outrider.types.errors import DrafterError

#: What block rows see: bool [B, 1, M, S + M], or the same in tiles for flex_attention.
Mask = Tensor | BlockMask


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Masked attention, q [B, h, M, d] over k and v [B, g, S + M, d] to [B, h, M, d]."""
    if isinstance(mask, BlockMask):
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


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
class TrimmedHead:
    """The target's embedding, and its head cut to the draft vocabulary.

    Attributes:
        embedding: [V, H].
        weight: [D, H].
        d2t: int64 [D], target token of every draft token, ascending.
        t2d: int64 [V], draft token of every target token, -1 if it has none.
    """

    embedding: Tensor
    weight: Tensor
    d2t: Tensor
    t2d: Tensor


def trimmed_head(target: TorchTarget, d2t: Tensor) -> TrimmedHead:
    """Cut a target's head to tokens ``d2t``."""
    size, device = target.config.vocab_size, target.device
    t2d = torch.full((size,), -1, dtype=torch.int64, device=device)
    t2d[d2t] = torch.arange(len(d2t), dtype=torch.int64, device=device)
    return TrimmedHead(target.embedding, target.head[d2t].contiguous(), d2t, t2d)


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


class DraftLayer(LayerModule):
    """A layer whose rows also attend to the context features."""

    def forward(self, x: Tensor, context: Tensor, at: tuple[Angles, Angles], mask: Mask) -> Tensor:
        """Run block rows [B, M, H] over context features [B, S, H].

        ``at`` holds the angles of the context and of the rows.
        """
        attn = self.self_attn
        normed = self.input_layernorm(x)
        ctx_k, ctx_v = attn.keys_values(context, at[0])
        k, v = attn.keys_values(normed, at[1])
        q = attn.queries(normed, at[1])
        mixed = attend(q, torch.cat([ctx_k, k], 2), torch.cat([ctx_v, v], 2), mask)
        return self.finish(x, mixed)


class MarkovHead(nn.Module):
    """Bias of a draft's logits by the token before it: W2 W1[x], optionally gated by the state."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        rank = config.markov_rank
        self.markov_w1 = nn.Embedding(config.vocab_size, rank, dtype=torch.float32)
        self.markov_w2 = nn.Linear(rank, config.draft_vocab_size, bias=False, dtype=torch.float32)
        gated = config.markov_kind == "gated"
        self.gate_proj = (
            nn.Linear(config.hidden_size + rank, rank, dtype=torch.float32) if gated else None
        )
        nn.init.normal_(self.markov_w1.weight, std=0.02)
        nn.init.normal_(self.markov_w2.weight, std=0.02)

    def code(self, previous: Tensor) -> Tensor:
        """W1 rows of tokens, [..] to [.., r]."""
        code: Tensor = self.markov_w1(previous)
        return code

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Bias [.., D] of states [.., H] after tokens [..]."""
        code = self.code(previous).to(hidden.dtype)
        if self.gate_proj is not None:
            gate = torch.sigmoid(linear(torch.cat([hidden, code], -1), self.gate_proj))
            code = gate * code
        return linear(code, self.markov_w2)


class ConfidenceHead(nn.Module):
    """Estimates the acceptance of a draft, given that those before it were accepted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1, dtype=torch.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Logit of the acceptance, float32 [..] of features [.., width]."""
        return F.linear(features.float(), self.proj.weight, self.proj.bias)[..., 0]


class BlockDrafter(nn.Module):
    """Backbone and heads; the embedding and the head stay the target's.

    Attributes:
        config: the shape.
        attention: "dense" or "flex".
    """

    def __init__(self, config: DrafterConfig, attention: str = "dense") -> None:
        """Create a network with fresh weights."""
        super().__init__()
        c = config
        self.config = c
        self.attention = attention
        shape = LayerShape(
            c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim, c.rms_eps
        )
        self.fc = nn.Linear(
            len(c.taps) * c.hidden_size, c.hidden_size, bias=False, dtype=torch.float32
        )
        self.hidden_norm = Norm(c.hidden_size, c.rms_eps)
        self.norm = Norm(c.hidden_size, c.rms_eps)
        self.layers = nn.ModuleList(DraftLayer(shape, head_norms=True) for _ in c.windows)
        self.mask_embedding = nn.Parameter(torch.randn(c.hidden_size, dtype=torch.float32) * 0.02)
        self.markov_head = MarkovHead(c) if c.markov_rank else None
        width = c.hidden_size + (c.markov_rank if c.confidence_with_markov else 0)
        self.confidence_head = ConfidenceHead(width) if c.confidence else None
        self._table: Angles | None = None
        init_layers(self, len(c.windows))

    def compile_layers(self) -> None:
        """Fuse the layers with torch.compile; all layers share one compiled program."""
        for layer in self.layers:
            layer.compile(dynamic=False)

    def angles(self, positions: Tensor) -> Angles:
        """Angles of positions, [..] to [.., d / 2]."""
        if self._table is None or self._table.cos.device != positions.device:
            c = self.config
            table = rotary_table(c.rotary, c.head_dim, c.max_position + c.block_size)
            device = positions.device
            self._table = Angles(table.cos.to(device), table.sin.to(device))
        return Angles(self._table.cos[positions], self._table.sin[positions])

    def forward(self, taps: Tensor, tips: Tensor, anchors: Tensor) -> Tensor:
        """States of every block row after the final norm, [B, N, R, H].

        Args:
            taps: tapped states [B, S, t H].
            tips: embedded anchor tokens [B, N, H].
            anchors: their positions, int64 [B, N].
        """
        b, n = anchors.shape
        rows, length = self.config.block_size, taps.shape[1]
        context = self.hidden_norm(linear(taps, self.fc))
        block = self.mask_embedding.to(taps.dtype).expand(b, n, rows - 1, -1)
        x = torch.cat([tips[:, :, None], block], 2).flatten(1, 2)
        offset = torch.arange(rows, dtype=torch.int64, device=anchors.device)
        ctx_at = self.angles(torch.arange(length, dtype=torch.int64, device=anchors.device))
        row_at = self.angles((anchors[..., None] + offset).flatten(1))
        at = (ctx_at, Angles(row_at.cos[:, None], row_at.sin[:, None]))
        masks: dict[tuple[int | None, bool], Mask] = {}
        kinds = zip(self.config.windows, self.config.causal, strict=True)
        for layer, kind in zip(self.layers, kinds, strict=True):
            if kind not in masks:
                masks[kind] = self._mask(anchors, length, *kind)
            x = layer(x, context, at, masks[kind])
        final: Tensor = self.norm(x)
        return final.view(b, n, rows, -1)

    def _mask(self, anchors: Tensor, length: int, window: int | None, causal: bool) -> Mask:
        make = tiled_block_mask if self.attention == "flex" else block_mask
        return make(anchors, self.config.block_size, length, window, causal)

    def rows(self, states: TargetStates, ids: Tensor, anchors: Tensor, embedding: Tensor) -> Tensor:
        """States of the rows that draft, [B, N, K, H], of blocks in conversations int64 [B, S]."""
        tips = F.embedding(ids.gather(1, anchors), embedding)
        return self._drafting(self(states.taps, tips, anchors))

    def simulate(
        self, states: TargetStates, ids: Tensor, anchors: Tensor, head: TrimmedHead
    ) -> Tensor:
        """What a real round would draft after each anchor, greedily: int64 [B, N, K]."""
        hidden = self.rows(states, ids, anchors, head.embedding)
        return self.draft(hidden, ids.gather(1, anchors), head)

    def _drafting(self, hidden: Tensor) -> Tensor:
        return hidden if self.config.row_shift else hidden[:, :, 1:]

    def logits(self, hidden: Tensor, previous: Tensor, head: Tensor) -> Tensor:
        """Draft logits [.., D] of states [.., H] after tokens [..]; ``head`` is [D, H]."""
        logits = F.linear(hidden, head)
        if self.markov_head is not None:
            logits = logits + self.markov_head(hidden, previous)
        return logits

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor | None:
        """Logit of each draft's acceptance, float32 [..]; it does not train the backbone."""
        if self.confidence_head is None:
            return None
        features = hidden.detach()
        if self.config.confidence_with_markov:
            if self.markov_head is None:
                raise ValueError("this confidence head reads Markov embeddings")
            code = self.markov_head.code(previous).detach().to(features.dtype)
            features = torch.cat([features, code], -1)
        confidence: Tensor = self.confidence_head(features)
        return confidence

    def draft(self, hidden: Tensor, tips: Tensor, head: TrimmedHead) -> Tensor:
        """Greedy drafts left to right, int64 [.., K], of rows [.., K, H] after tokens [..]."""
        drafts = []
        previous = tips
        for index in range(hidden.shape[-2]):
            logits = self.logits(hidden[..., index, :], previous, head.weight)
            previous = head.d2t[logits.argmax(-1)]
            drafts.append(previous)
        return torch.stack(drafts, -1)

    def warm_start(self, target: TorchTarget, layers: bool) -> None:
        """Take the target's final norm, whose output its head expects, and perhaps its layers."""
        copy_weight(self.norm.weight, target.norm)
        if not layers:
            return
        count = len(self.layers)
        for layer, weights in zip(self.layers, target.layers[-count:], strict=True):
            copy_layer(cast("DraftLayer", layer), weights)


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
