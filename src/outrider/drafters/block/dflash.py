"""The DFlash drafter: every row of the block is predicted at once (arXiv 2602.06036)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from outrider.drafters.base import CommittedRows, DrafterFault, Proposal
from outrider.drafters.block.backbone import BlockBackbone
from outrider.drafters.context.drafter import ContextDrafter, all_finite
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.context.state import ContextState
from outrider.drafters.head import DraftHead, draw_token, stack_distributions
from outrider.kernels.rows import RowGroup, Rows
from outrider.kernels.tensors import token_ids
from outrider.models.dense import DenseModel

NOT_FINITE: Final = "the drafter's states are not finite"


class DFlashDrafter(ContextDrafter):
    """Drafts the rows of one denoised block, each from its own distribution.

    With ``row_shift`` 0 block row j predicts the token at its own position, and the anchor's row is
    discarded; with 1 it predicts the token after it. Fewer drafts than rows: all rows run as
    trained, the first ones are used.
    """

    def __init__(
        self, backbone: BlockBackbone, target: DenseModel, head: DraftHead, draft_pages: int
    ) -> None:
        """Allocate ``draft_pages`` pages of context.

        Args:
            backbone: the block network.
            target: the model it drafts for.
            head: from final states to target tokens.
            draft_pages: pages shared by all sessions.
        """
        c = backbone.config
        super().__init__(c.kind, target, backbone.allocate(draft_pages), c.max_position, c.reach)
        self.config = c
        self.backbone = backbone
        self.head = head
        self.taps = c.taps
        self.max_draft = c.max_draft
        self._masks = self._mask_rows()

    def _features(self, states: list[ContextState], rows: list[CommittedRows]) -> list[Tensor]:
        return [new.taps for new in rows if new.taps is not None]

    def _write(self, features: Tensor, rows: Rows) -> None:
        self.backbone.observe(features, rows, self.pool.store)

    def _draft(self, requests: list[CheckedRequest]) -> list[Proposal | DrafterFault]:
        pairs = zip(requests, self._hidden(requests), strict=True)
        sound = [(request, rows) for request, rows in pairs if all_finite(rows)]
        drafts: dict[int, Proposal] = {}
        if sound:
            picked = self._pick([request for request, _ in sound], [rows for _, rows in sound])
            drafts = {
                request.place: draft for (request, _), draft in zip(sound, picked, strict=True)
            }
        return [drafts.get(request.place, DrafterFault(NOT_FINITE)) for request in requests]

    def _hidden(self, requests: Sequence[CheckedRequest]) -> list[Tensor]:
        """Final states of the rows that predict each session's drafts, [length_i, H] each."""
        size, first = self.config.block_size, 1 - self.config.row_shift
        block = self.block_embeddings([request.tip for request in requests])
        hidden = self.backbone.forward_round(block, self._block_rows(requests), self.pool.store)
        return [
            rows[first : first + request.length]
            for request, rows in zip(requests, torch.split(hidden, size), strict=True)
        ]

    def _block_rows(self, requests: Sequence[CheckedRequest]) -> Rows:
        """The block rows of every session, after its cached context."""
        size = self.config.block_size
        return Rows(
            tuple(
                RowGroup(
                    request.state.length, size, request.state.cache.pages, request.state.cache.floor
                )
                for request in requests
            )
        )

    def block_embeddings(self, anchors: Sequence[int]) -> Tensor:
        """Embed [anchor, mask x (block_size - 1)] of every anchor, float32 [n block_size, H]."""
        size = self.config.block_size
        block = self._masks.repeat(len(anchors), 1)
        block[::size] = self._embed_scaled(token_ids(anchors, self.kernels.device))
        return block

    def _mask_rows(self) -> Tensor:
        """The rows of a block before its anchor is set: masks, embedded and scaled."""
        c = self.config
        if self.backbone.mask is not None:
            mask = self.backbone.mask[None] * c.embedding_scale
        else:
            mask = self._embed_scaled(token_ids([c.mask_token_id], self.kernels.device))
        return mask.repeat(c.block_size, 1)

    def _embed_scaled(self, ids: Tensor) -> Tensor:
        scale = self.config.embedding_scale
        embedded = self.target.embed(ids)
        return embedded if scale == 1.0 else embedded * scale

    def _pick(self, requests: list[CheckedRequest], hidden: list[Tensor]) -> list[Proposal]:
        """Choose the tokens from final states, one proposal per session."""
        greedy = [
            rows for request, rows in zip(requests, hidden, strict=True) if not _draws(request)
        ]
        likeliest = iter(self.head.argmax(torch.cat(greedy)) if greedy else [])
        return [
            self._draw_all(request, rows)
            if _draws(request)
            else Proposal([next(likeliest) for _ in range(request.length)])
            for request, rows in zip(requests, hidden, strict=True)
        ]

    def _draw_all(self, request: CheckedRequest, hidden: Tensor) -> Proposal:
        tokens, distributions = [], []
        for row, logits in enumerate(self.head.logits(hidden)):
            position = request.state.length + 1 + row
            token, distribution = draw_token(self.head, logits, request.state.sampling, position)
            tokens.append(token)
            distributions.append(distribution)
        return Proposal(tokens, stack_distributions(distributions))


def _draws(request: CheckedRequest) -> bool:
    return request.state.sampling.temperature > 0
