"""The DFlash2 drafter: dynamic convolutions in the block, and candidates chosen left to right.

Around each sublayer stands a grouped dynamic causal convolution over the block's rows, both sides'
kernels made from the same normed input x:

    delta = P x                                     [side 2, tap K, group]
    conv_s(z)[t, c] = sum_j (base[s, j, c] + delta[t, s, j, group(c)]) z[t - j, c]
    y = z + conv_1(sublayer(conv_0(x)))             x = norm(z), zero before the block's first row

The context bypasses the convolutions, as it bypasses the norm. The selector then decodes the block
from left to right:

    score_t(p, c) = u_c + <A[p] * S h_t, B[c]>

over the top candidates c of each row, with u their logits and p the token chosen before
(public package ``dflash``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from outrider.config.drafter import DrafterConfig
from outrider.drafters.base import DraftSampling, Proposal
from outrider.drafters.block.backbone import Attend, BlockBackbone
from outrider.drafters.block.dflash import DFlashDrafter
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.head import DraftHead, draw, over_vocabulary, stack_distributions
from outrider.kernels.handles import Linear, PageStore
from outrider.kernels.rows import Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import token_ids
from outrider.kernels.values import LayerWeights
from outrider.models.dense import DenseModel
from outrider.models.layers import TensorSource


@dataclass(frozen=True)
class DynamicConv:
    """One sublayer's convolution.

    Attributes:
        base: static kernels, float32 [2, K, H].
        projection: matrix [2 K H / group, H] of the dynamic kernels.
        group: channels that share a dynamic kernel.
    """

    base: Tensor
    projection: Linear
    group: int

    def kernels_of(self, kernels: Kernels, normed: Tensor) -> Tensor:
        """Whole kernels of both sides for every row, float32 [2, n, K, H]."""
        taps, width = self.base.shape[1:]
        delta = kernels.linear(normed, self.projection)
        delta = delta.reshape(len(normed), 2, taps, width // self.group)
        return self.base[:, None] + delta.permute(1, 0, 2, 3).repeat_interleave(self.group, dim=-1)


def convolve(x: Tensor, kernel: Tensor, block_rows: int) -> Tensor:
    """Causal convolution of blocks: x [n, H] under per-row kernels [n, K, H] to [n, H]."""
    blocks = x.reshape(-1, block_rows, x.shape[-1])
    weights = kernel.reshape(*blocks.shape[:2], *kernel.shape[1:])
    out = weights[:, :, 0] * blocks
    for tap in range(1, min(kernel.shape[1], block_rows)):
        out[:, tap:] += weights[:, tap:, tap] * blocks[:, :-tap]
    return out.reshape(x.shape)


class ConvolvedBackbone(BlockBackbone):
    """The block backbone with convolutions around every sublayer."""

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare every weight."""
        super().__init__(config, kernels, tensors)
        self._convs = [
            (self._conv(f"layers.{i}.attention_conv"), self._conv(f"layers.{i}.mlp_conv"))
            for i in range(config.num_layers)
        ]

    def _conv(self, name: str) -> DynamicConv:
        c = self.config
        rows = 2 * c.conv_kernel_size * (c.hidden_size // c.conv_group_size)
        base_shape = (2, c.conv_kernel_size, c.hidden_size)
        base = self._tensors(f"{name}.base_kernel", base_shape).float().contiguous()
        projection = self._tensors(f"{name}.kernel_projection.weight", (rows, c.hidden_size))
        return DynamicConv(base, self.kernels.prepare([projection]), c.conv_group_size)

    def _run(self, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        block_rows = rows.groups[0].count
        for index, layer in enumerate(self.weights.layers):
            attend = partial(self._attend_cached, rows, store, index, layer)
            x = self._layer(index, x, rows.positions, block_rows, attend)
        return x

    def _attend_cached(
        self,
        rows: Rows,
        store: PageStore,
        index: int,
        layer: LayerWeights,
        q: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> Tensor:
        return self.kernels.attend_block(q, k, v, store, index, rows, layer.window, layer.causal)

    def _layer(
        self, index: int, x: Tensor, positions: Tensor, block_rows: int, attend: Attend
    ) -> Tensor:
        layer, kernels, eps = self.weights.layers[index], self.kernels, self.config.rms_eps
        attention_conv, mlp_conv = self._convs[index]
        normed = kernels.rms_norm(x, layer.attn_norm, eps)
        before, after = attention_conv.kernels_of(kernels, normed)
        inner = convolve(normed, before, block_rows)
        mixed = kernels.linear(attend(*self._heads(layer, inner, positions)), layer.out)
        x = x + convolve(mixed, after, block_rows)
        normed = kernels.rms_norm(x, layer.mlp_norm, eps)
        before, after = mlp_conv.kernels_of(kernels, normed)
        fed = self._feed_forward(layer, convolve(normed, before, block_rows))
        return x + convolve(fed, after, block_rows)


class CandidateSelector:
    """Scores each row's candidates against the token chosen before it."""

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare the codebooks [V, r] and the projection [r, H]."""
        shape = (config.vocab_size, config.selector_rank)
        self._kernels = kernels
        self._top_k = config.selector_top_k
        prefix = "candidate_selector."
        self._before = kernels.prepare([tensors(prefix + "predecessor_codebook", shape)])
        self._after = kernels.prepare([tensors(prefix + "successor_codebook", shape)])
        projection = (config.selector_rank, config.hidden_size)
        self._hidden = kernels.prepare([tensors(prefix + "hidden_projection.weight", projection)])

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and draft ids of each row's top candidates, [n, V'] to two [n, top_k]."""
        scores, ids = logits.topk(self._top_k, dim=-1)
        return scores, ids

    def project(self, hidden: Tensor) -> Tensor:
        """``S h`` of rows [n, H], float32 [n, r]."""
        return self._kernels.linear(hidden, self._hidden)

    def scores(self, unary: Tensor, ids: Tensor, projected: Tensor, before: int) -> Tensor:
        """Scores of one row's candidates, float32 [top_k].

        Args:
            unary: their logits, float32 [top_k].
            ids: their target ids, int64 [top_k].
            projected: the row's projected state, float32 [r].
            before: the token chosen before.
        """
        device = self._kernels.device
        query = self._kernels.embed(self._before, token_ids([before], device))[0]
        # Not a product of torch's, whose precision is a setting of the process.
        return unary + (self._kernels.embed(self._after, ids) * (query * projected)).sum(-1)


class DFlash2Drafter(DFlashDrafter):
    """Chooses among each row's candidates from left to right, greedily or by drawing."""

    def __init__(
        self,
        backbone: ConvolvedBackbone,
        target: DenseModel,
        head: DraftHead,
        draft_pages: int,
        selector: CandidateSelector,
    ) -> None:
        """Allocate ``draft_pages`` pages of context."""
        super().__init__(backbone, target, head, draft_pages)
        self.selector = selector

    def _pick(self, requests: list[CheckedRequest], hidden: list[Tensor]) -> list[Proposal]:
        flat = torch.cat(hidden)
        lengths = [request.length for request in requests]
        unary, ids = self.selector.candidates(self.head.logits(flat))
        parts = (unary, self.head.target_ids(ids), self.selector.project(flat))
        rows = zip(*(torch.split(part, lengths) for part in parts), strict=True)
        return [
            self._decode(request, *of_request)
            for request, of_request in zip(requests, rows, strict=True)
        ]

    def _decode(
        self, request: CheckedRequest, unary: Tensor, ids: Tensor, projected: Tensor
    ) -> Proposal:
        """Choose one session's tokens: unary and ids [n, top_k], projected [n, r]."""
        sampling, before = request.state.sampling, request.tip
        tokens: list[int] = []
        distributions: list[Tensor | None] = []
        for row in range(request.length):
            scores = self.selector.scores(unary[row], ids[row], projected[row], before)
            if sampling.temperature > 0:
                position = request.state.length + 1 + row
                before, q = self._draw(scores, ids[row], sampling, position)
                distributions.append(q)
            else:
                before = int(ids[row][scores == scores.max()].min())
            tokens.append(before)
        return Proposal(tokens, stack_distributions(distributions))

    def _draw(
        self, scores: Tensor, ids: Tensor, sampling: DraftSampling, position: int
    ) -> tuple[int, Tensor | None]:
        index, probabilities = draw(self.kernels, scores, ids, sampling, position)
        return int(ids[index]), over_vocabulary(probabilities, ids, self.head.vocab_size, sampling)
