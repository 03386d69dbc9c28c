"""The trainable multi-token-prediction head. Parameter names are those of Qwen's checkpoints.

Slot p holds token p and the target's state of position p - 1, and predicts token p + 1:

    x_p = fc([norm_e(embed(token_p)); norm_h(h_{p-1})]),  o_p = norm(layer(x)_p)

A chain goes on from slot a with o_a in place of h_a and the token just drafted (FastMTP,
arXiv 2509.18362: recursive states, teacher-forced tokens). Chained slots see true slots up to a and
the chain's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from outrider.config.drafter import MtpConfig
from outrider.train.networks.angles import AngleTable
from outrider.train.networks.heads import TrimmedHead
from outrider.train.networks.layers import (
    LayerModule,
    LayerShape,
    Norm,
    copy_layer,
    copy_weight,
    init_layers,
    linear,
)
from outrider.train.networks.target import Angles, TargetStates, TorchTarget

#: Tokens that a chain feeds next, int64 [B, N], by depth and the states just computed [B, N, H].
Choose = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class _Slots:
    """Keys and values [B, g, S - 1, d] of the true slots, and which of them each chain sees."""

    keys: Tensor
    values: Tensor
    seen: Tensor


class MtpLayer(LayerModule):
    """A causal layer over true slots; chains run through its parts."""

    def forward(self, x: Tensor, at: Angles) -> tuple[Tensor, Tensor, Tensor]:
        """States [B, S, H] after the layer, and its keys and values [B, g, S, d]."""
        normed = self.input_layernorm(x)
        q = self.self_attn.queries(normed, at)
        k, v = self.self_attn.keys_values(normed, at)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )
        return self.finish(x, mixed), k, v


class MtpHead(nn.Module):
    """One decoder layer over [embedding; state], chained on its own states."""

    #: It reads no tapped layers.
    taps: tuple[int, ...] = ()

    def __init__(self, config: MtpConfig) -> None:
        """Create a head with fresh weights."""
        super().__init__()
        c = config
        self.config = c
        shape = LayerShape(
            c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim, c.rms_eps
        )
        self.fc = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False, dtype=torch.float32)
        self.pre_fc_norm_embedding = Norm(c.hidden_size, c.rms_eps)
        self.pre_fc_norm_hidden = Norm(c.hidden_size, c.rms_eps)
        self.layers = nn.ModuleList([MtpLayer(shape, head_norms=c.qk_norm)])
        self.norm = Norm(c.hidden_size, c.rms_eps)
        self._angles = AngleTable(config, config.max_position + config.depth)
        init_layers(self, 1)

    @property
    def drafts(self) -> int:
        """Drafts of a round."""
        return self.config.depth

    @property
    def _layer(self) -> MtpLayer:
        layer = self.layers[0]
        return cast("MtpLayer", layer)

    def compile_layers(self) -> None:
        """Fuse the layer over true slots with torch.compile."""
        self._layer.compile(dynamic=False)

    def warm_start(self, target: TorchTarget, layers: bool) -> None:
        """Take the target's final norm and perhaps its last layer."""
        copy_weight(self.norm.weight, target.norm)
        if layers:
            copy_layer(self._layer, target.layers[-1])

    def _join(self, tokens: Tensor, states: Tensor, embedding: Tensor) -> Tensor:
        """Inputs [.., H] of slots that hold tokens int64 [..] after states [.., H]."""
        embedded = self.pre_fc_norm_embedding(F.embedding(tokens, embedding))
        return linear(torch.cat([embedded, self.pre_fc_norm_hidden(states)], -1), self.fc)

    def rows(self, states: TargetStates, ids: Tensor, anchors: Tensor, embedding: Tensor) -> Tensor:
        """States of chains after each anchor, tokens teacher-forced: [B, N, K, H]."""
        last = ids.shape[1] - 1

        def forced(depth: int, hidden: Tensor) -> Tensor:
            return ids.gather(1, (anchors + depth).clamp(max=last))

        return self._chain(states, ids, anchors, embedding, forced)

    def simulate(
        self, states: TargetStates, ids: Tensor, anchors: Tensor, head: TrimmedHead
    ) -> Tensor:
        """What a real round would draft after each anchor, greedily: int64 [B, N, K]."""

        def drafted(depth: int, hidden: Tensor) -> Tensor:
            return head.d2t[F.linear(hidden, head.weight).argmax(-1)]

        hidden = self._chain(states, ids, anchors, head.embedding, drafted)
        return head.d2t[F.linear(hidden, head.weight).argmax(-1)]

    def logits(self, hidden: Tensor, previous: Tensor, head: Tensor) -> Tensor:
        """Draft logits [.., D] of states [.., H]; the token before needs no second mention."""
        return F.linear(hidden, head)

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor | None:
        """None: the head's own probability serves."""
        return None

    def _chain(
        self,
        states: TargetStates,
        ids: Tensor,
        anchors: Tensor,
        embedding: Tensor,
        choose: Choose,
    ) -> Tensor:
        x = self._join(ids[:, 1:], states.hidden[:, :-1], embedding)
        slots = torch.arange(1, ids.shape[1], dtype=torch.int64, device=ids.device)
        y, keys, values = self._layer(x, self._angles.at(slots))
        seen = slots[None, None] <= anchors[..., None]
        true = _Slots(keys, values, seen)
        at = (anchors - 1).clamp(min=0)[..., None].expand(-1, -1, y.shape[-1])
        hidden = self.norm(y).gather(1, at)
        out = [hidden]
        own: list[tuple[Tensor, Tensor]] = []
        for depth in range(1, self.config.depth):
            x = self._join(choose(depth, hidden), hidden, embedding)
            hidden = self.norm(self._chained(x, anchors + depth, true, own))
            out.append(hidden)
        return torch.stack(out, 2)

    def _chained(
        self, x: Tensor, positions: Tensor, true: _Slots, own: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Run chained slots [B, N, H], one of each chain; their keys and values join ``own``."""
        layer = self._layer
        table = self._angles.at(positions)
        at = Angles(table.cos[:, None], table.sin[:, None])
        normed = layer.input_layernorm(x)
        q = layer.self_attn.queries(normed, at)
        own.append(layer.self_attn.keys_values(normed, at))
        b, h, n, d = q.shape
        g = true.keys.shape[1]
        grouped = q.view(b, g, h // g, n, d) * d**-0.5
        scores = torch.einsum("bgrnd,bgsd->bgrns", grouped, true.keys).float()
        scores = scores.masked_fill(~true.seen[:, None, None], -torch.inf)
        chain = [torch.einsum("bgrnd,bgnd->bgrn", grouped, k)[..., None].float() for k, _ in own]
        weights = torch.cat([scores, *chain], -1).softmax(-1).to(x.dtype)
        count = scores.shape[-1]
        mixed = torch.einsum("bgrns,bgsd->bgrnd", weights[..., :count], true.values)
        for index, (_, v) in enumerate(own):
            mixed = mixed + weights[..., count + index, None] * v[:, :, None]
        return layer.finish(x, mixed.reshape(b, h, n, d))
