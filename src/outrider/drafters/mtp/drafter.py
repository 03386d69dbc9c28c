"""Multi-token prediction: one decoder layer, chained on its own hidden state.

The head reads a token beside the hidden state of the token before it, and predicts the one after:

    x_p = fc([norm_e(embed(token_p)); norm_h(h_(p-1))])
    o_p = norm(layer(x_p))                           -> head -> token p + 1

Slot p of its cache holds token p so paired, for every committed token. A chain starts at the tip
with the target's own hidden state; each further step feeds the drafted token and the head's output
o in place of a target state it cannot have. The chain's slots are staged and dropped; once the
target has judged, the accepted tokens' slots are written again from the target's true states.

Official heads place the pair at position p - 1. Rotary attention depends on distances alone, so
counting slots by their token changes nothing. (DeepSeek-V3, arXiv 2412.19437; Qwen3-Next.)
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from outrider.caches.paged import PagedCache
from outrider.config.drafter import MtpConfig
from outrider.drafters.base import (
    CommittedRows,
    DrafterFault,
    DraftSampling,
    DraftState,
    Proposal,
    Tail,
)
from outrider.drafters.context.drafter import ContextDrafter, all_finite
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.context.state import ContextState
from outrider.drafters.context.tail import ContextTail
from outrider.drafters.head import DraftHead, argmax_lowest
from outrider.drafters.mtp.chain import DraftChain
from outrider.drafters.mtp.state import MtpState, mtp_state
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import token_ids
from outrider.kernels.values import StackWeights
from outrider.models.dense import DenseModel
from outrider.models.layers import LayerFormat, LayerReader, TensorSource
from outrider.models.rotary import rotary_table


class MtpDrafter(ContextDrafter):
    """Drafts up to ``depth`` tokens one after the other."""

    def __init__(
        self,
        config: MtpConfig,
        target: DenseModel,
        head: DraftHead,
        tensors: TensorSource,
        draft_pages: int,
    ) -> None:
        """Prepare every weight and allocate ``draft_pages`` pages."""
        c, kernels = config, target.kernels
        dtype = kernels.draft_kv_dtype
        store = kernels.allocate(1, draft_pages, c.num_kv_heads, c.head_dim, dtype)
        super().__init__("mtp", target, store, c.max_position, c.window)
        self.config = config
        self.head = head
        self.taps = (target.config.num_layers - 1,)
        self.max_draft = c.depth
        form = LayerFormat(c.attention_bias, c.attention_bias, c.qk_norm, c.zero_centered)
        reader = LayerReader(c, form, tensors)
        self._norm_token = reader.norm("mtp.pre_fc_norm_embedding.weight", c.hidden_size)
        self._norm_hidden = reader.norm("mtp.pre_fc_norm_hidden.weight", c.hidden_size)
        self._norm = reader.norm("mtp.norm.weight", c.hidden_size)
        fc = tensors("mtp.fc.weight", (c.hidden_size, 2 * c.hidden_size))
        self._fc = kernels.prepare([fc])
        self._weights = StackWeights(
            (reader.read("mtp.layers.0.").prepare(kernels, c.window),),
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            c.rms_eps,
            rotary_table(c.rotary, c.head_dim, c.max_position + c.depth),
        )
        self.stack = kernels.prepare_stack(self._weights)

    def begin(self, sampling: DraftSampling) -> MtpState:
        """Return a state without slots."""
        return MtpState(PagedCache(self.pool), sampling)

    # -- observing -----------------------------------------------------------------------------

    def combine(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """``fc([norm_e(embed(token)); norm_h(h)])``: int64 [n] and float32 [n, H] to [n, H]."""
        kernels, eps = self.kernels, self.config.rms_eps
        token = kernels.rms_norm(self.target.embed(tokens), self._norm_token, eps)
        before = kernels.rms_norm(hidden, self._norm_hidden, eps)
        return kernels.linear(torch.cat([token, before], dim=-1), self._fc)

    def _features(self, states: list[ContextState], rows: list[CommittedRows]) -> list[Tensor]:
        """Paired inputs of the slots whose predecessor is known.

        The first slot of a session that starts here, or resumes cold, has no predecessor: the
        state moves past it.
        """
        tokens: list[int] = []
        before, counts = [], []
        for state, new in zip(states, rows, strict=True):
            own = self._target_states(new)
            previous = mtp_state(state).hidden.at(new.start - 1)
            kept = new.tokens if previous is not None else new.tokens[1:]
            if previous is not None:
                before.append(previous[None])
            else:
                state.skip_to(new.start + 1)
            mtp_state(state).hidden.append(new.start, own)
            tokens += kept
            before.append(own[:-1])
            counts.append(len(kept))
        ids = token_ids(tokens, self.kernels.device)
        return list(torch.split(self.combine(ids, torch.cat(before)), counts))

    def _target_states(self, new: CommittedRows) -> Tensor:
        """What the head reads of the target, float32 [n, H]."""
        if new.taps is None:
            raise ValueError("rows without taps are to be passed over")
        if self.config.target_state == "residual":
            return new.taps
        return self.kernels.rms_norm(new.taps, self.target.norm, self.target.config.rms_eps)

    def _write(self, features: Tensor, rows: Rows) -> None:
        layer, eps = self._weights.layers[0], self.config.rms_eps
        normed = self.kernels.rms_norm(features, layer.attn_norm, eps)
        flat = self.kernels.linear(normed, layer.qkv)
        _, k, v = self._weights.split_heads(flat)
        if layer.k_norm is not None:
            k = self.kernels.rms_norm(k, layer.k_norm, eps)
        k = self.kernels.rotate(k, rows.positions, self._weights.rotary)
        self.kernels.write(self.pool.store, 0, k, v, rows)

    # -- proposing -----------------------------------------------------------------------------

    def _draft(self, requests: list[CheckedRequest]) -> list[Proposal | DrafterFault]:
        chains = [DraftChain(request, mtp_state(request.state)) for request in requests]
        try:
            for chain in chains:
                chain.stage(self.pool.store)
            for step in range(max(request.length for request in requests)):
                live = [chain for chain in chains if chain.open]
                if live:
                    self._step(step, live)
        finally:
            for chain in chains:
                chain.drop()
        return [chain.answer() for chain in chains]

    def _step(self, step: int, chains: list[DraftChain]) -> None:
        """Advance every open chain by one token."""
        groups = tuple(chain.row(step) for chain in chains)
        ids = token_ids([chain.token for chain in chains], self.kernels.device)
        x = self.combine(ids, torch.stack([chain.hidden for chain in chains]))
        x, _ = self.kernels.run_layers(self.stack, x, Rows(groups), self.pool.store)
        states = self.kernels.rms_norm(x, self._norm, self.config.rms_eps)
        logits = self.head.logits(states)
        best = argmax_lowest(logits)
        likelihood = (logits.amax(-1) - logits.logsumexp(-1)).exp().tolist()
        likeliest = self.head.target_ids(best).tolist()
        for place, chain in enumerate(chains):
            if not all_finite(states[place]):
                chain.fail("the drafter's states are not finite")
            elif likelihood[place] < self.config.confidence_threshold:
                chain.open = False
            else:
                chain.take(self.head, likeliest[place], logits[place], states[place])
                chain.confidences.append(likelihood[place])

    # -- tails ---------------------------------------------------------------------------------

    def lowest_needed(self, upto: int) -> int:
        """Lowest slot that drafting from ``upto`` on can observe; slot 0 never exists."""
        return max(super().lowest_needed(upto), 1)

    def export_tail(self, state: DraftState, upto: int) -> ContextTail | None:
        """Copy out slots below ``upto`` and the target state of the last one."""
        before = mtp_state(state).hidden.at(upto - 1)
        if before is None and 0 < upto <= state.length:
            self.tails.refused["export: target state not kept"] += 1
            return None
        tail = super().export_tail(state, upto)
        return None if tail is None or before is None else replace(tail, extra=before.clone())

    def restore(self, tail: Tail, sampling: DraftSampling) -> MtpState | None:
        """Rebuild a state at the tail's position, or refuse if the tail does not suffice."""
        state = super().restore(tail, sampling)
        if state is None:
            return None
        if not isinstance(tail, ContextTail) or tail.extra is None:
            raise TypeError("a tail of this drafter carries a target state")
        mine = mtp_state(state)
        mine.hidden.append(tail.upto - 1, tail.extra[None])
        return mine
