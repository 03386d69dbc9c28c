"""The trainable DFlash and DSpark drafter. Parameter names are those of its checkpoint.

Shapes: B conversations, S positions, N blocks a conversation, R rows a block, K drafts a block,
M = N R block rows a conversation, D draft vocabulary, H hidden, t taps, r Markov rank.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from outrider.config.drafter import DrafterConfig
from outrider.train.config import Attention
from outrider.train.networks.angles import AngleTable
from outrider.train.networks.heads import ConfidenceHead, MarkovHead, TrimmedHead
from outrider.train.networks.layers import (
    LayerModule,
    LayerShape,
    Norm,
    copy_layer,
    copy_weight,
    init_layers,
    linear,
)
from outrider.train.networks.masks import Mask, attend, block_mask, tiled_block_mask
from outrider.train.networks.target import (
    Angles,
    TargetStates,
    TorchTarget,
)


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


class BlockDrafter(nn.Module):
    """Backbone and heads; the embedding and the head stay the target's.

    Attributes:
        config: the shape.
        attention: how its rows attend.
    """

    def __init__(self, config: DrafterConfig, attention: Attention = "dense") -> None:
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
        self._angles = AngleTable(config, config.max_position + config.block_size)
        init_layers(self, len(c.windows))

    @property
    def drafts(self) -> int:
        """Drafts of a round."""
        return self.config.max_draft

    @property
    def taps(self) -> tuple[int, ...]:
        """Target layers that it reads."""
        return self.config.taps

    def compile_layers(self) -> None:
        """Fuse the layers with torch.compile; all layers share one compiled program."""
        for layer in self.layers:
            layer.compile(dynamic=False)

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
        ctx_at = self._angles.at(torch.arange(length, dtype=torch.int64, device=anchors.device))
        row_at = self._angles.at((anchors[..., None] + offset).flatten(1))
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
