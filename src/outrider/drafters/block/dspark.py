"""The DSpark drafter: a block decoded from left to right (arXiv 2607.05147)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from outrider.drafters.base import DrafterFault, Proposal, confident
from outrider.drafters.block.backbone import BlockBackbone
from outrider.drafters.block.dflash import NOT_FINITE, DFlashDrafter
from outrider.drafters.block.markov import ConfidenceHead, MarkovHead, VanillaMarkov
from outrider.drafters.context.drafter import joined
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.head import DraftHead, argmax_lowest, draw_token, stack_distributions
from outrider.kernels.handles import BlockDrafter
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.tensors import token_ids, zeros
from outrider.kernels.values import Block, BlockDraftWeights
from outrider.models.dense import DenseModel


@dataclass
class _BlockDraft:
    """One session's draft while its block is decoded from left to right.

    Attributes:
        request: the session.
        first: its first row among all sessions' rows.
        previous: the token before the next row.
        open: whether it goes on.
    """

    request: CheckedRequest
    first: int
    previous: int
    open: bool = True
    tokens: list[int] = field(default_factory=list)
    distributions: list[Tensor | None] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)

    def take(self, token: int, distribution: Tensor | None) -> None:
        """Add a token to the draft."""
        self.tokens.append(token)
        self.distributions.append(distribution)
        self.previous = token
        self.open = len(self.tokens) < self.request.length

    def proposal(self) -> Proposal:
        """What was drafted; a confidence without its token is dropped."""
        kept = self.confidences[: len(self.tokens)]
        return Proposal(self.tokens, stack_distributions(self.distributions), kept)


class DSparkDrafter(DFlashDrafter):
    """Corrects each row's logits by the token before it, and stops where confidence is low.

    The backbone and the head run once for all rows; only the low-rank bias and the choice are
    sequential.
    """

    def __init__(
        self,
        backbone: BlockBackbone,
        target: DenseModel,
        head: DraftHead,
        draft_pages: int,
        markov: MarkovHead | None,
        confidence: ConfidenceHead | None,
    ) -> None:
        """Allocate ``draft_pages`` pages of context.

        Args:
            backbone: the block network.
            target: the model it drafts for.
            head: from final states to target tokens.
            draft_pages: pages shared by all sessions.
            markov: bias by the token before, if the checkpoint has one.
            confidence: estimate of acceptance, if the checkpoint has one.
        """
        super().__init__(backbone, target, head, draft_pages)
        self.markov = markov
        self.confidence = confidence
        self._fused = self._prepare_fused()

    def _prepare_fused(self) -> BlockDrafter | None:
        """The drafter as one operator; None where a head has a form that it does not know."""
        if not isinstance(self.markov, VanillaMarkov) or not self.head.plain:
            return None
        c, rank = self.config, self.markov.rank
        weights = BlockDraftWeights(
            self.backbone.stack,
            self.target.embedding,
            c.embedding_scale,
            self._masks,
            1 - c.row_shift,
            self.backbone.final_norm,
            self.head.weight,
            self.markov.weights(self.head.ids),
            None if self.confidence is None else self.confidence.weights(rank),
        )
        return self.kernels.prepare_block_drafter(weights)

    def _draft(self, requests: list[CheckedRequest]) -> list[Proposal | DrafterFault]:
        """Draft in one operator where nobody needs to know what a token was drawn from.

        On the target's own stream a draw is judged by the token alone.
        """
        sampled_apart = any(request.state.sampling.stream != STREAM_TOKEN for request in requests)
        if self._fused is None or sampled_apart:
            return super()._draft(requests)
        blocks = [_block(request) for request in requests]
        rows, store = self._block_rows(requests), self.pool.store
        chosen, sure = self.kernels.draft_blocks(self._fused, rows, store, blocks)
        tokens, confidences = chosen.tolist(), sure.tolist()
        answers: list[Proposal | DrafterFault] = []
        first = 0
        for block in blocks:
            last = first + block.length
            answers.append(self._answer(tokens[first:last], confidences[first:last]))
            first = last
        return answers

    def _answer(self, tokens: list[int], confidences: list[float]) -> Proposal | DrafterFault:
        """A decoded block, cut at the first row that is not confident enough."""
        if any(map(math.isnan, confidences)):
            return DrafterFault(NOT_FINITE)
        if self.confidence is None:
            return Proposal(tokens)
        keep = confident(confidences, self.config.confidence_threshold)
        return Proposal(tokens[:keep], None, confidences[:keep])

    def _pick(self, requests: list[CheckedRequest], hidden: list[Tensor]) -> list[Proposal]:
        """Decode step by step, with the distribution of every drawn token."""
        flat = joined(hidden)
        logits = self.head.logits(flat)
        drafts, first = [], 0
        for request in requests:
            drafts.append(_BlockDraft(request, first, request.tip))
            first += request.length
        memory = self.markov.start(len(drafts)) if self.markov else zeros(len(drafts), 0)
        for step in range(max(request.length for request in requests)):
            self._step(step, drafts, flat, logits, memory)
        return [draft.proposal() for draft in drafts]

    def _step(
        self, step: int, drafts: list[_BlockDraft], hidden: Tensor, logits: Tensor, memory: Tensor
    ) -> None:
        """Advance every open draft by one row; ``memory`` [drafts, r] is updated in place."""
        live = [place for place, draft in enumerate(drafts) if draft.open]
        if not live:
            return
        rows = token_ids([drafts[place].first + step for place in live], hidden.device)
        states = hidden[rows]
        embedded = self._embed([drafts[place].previous for place in live])
        if self.confidence is not None:
            estimates = self.confidence.estimate(states, embedded)
            for place, estimate in zip(live, estimates, strict=True):
                drafts[place].confidences.append(estimate)
                drafts[place].open = estimate >= self.config.confidence_threshold
        scores = logits[rows]
        if self.markov is not None and embedded is not None:
            bias, memory[live] = self.markov.step(states, embedded, memory[live])
            scores = scores + bias
        self._choose([drafts[place] for place in live], scores)

    def _embed(self, tokens: list[int]) -> Tensor | None:
        if self.markov is None:
            return None
        return self.markov.embed(token_ids(tokens, self.kernels.device))

    def _choose(self, drafts: list[_BlockDraft], scores: Tensor) -> None:
        """Take each open draft's next token from its corrected logits, float32 [drafts, V']."""
        likeliest = self.head.target_ids(argmax_lowest(scores)).tolist()
        for draft, row, best in zip(drafts, scores, likeliest, strict=True):
            if not draft.open:
                continue
            state = draft.request.state
            if state.sampling.temperature > 0:
                position = state.length + 1 + len(draft.tokens)
                draft.take(*draw_token(self.head, row, state.sampling, position))
            else:
                draft.take(best, None)


def _block(request: CheckedRequest) -> Block:
    """A session's rows, as the fused operator takes them."""
    state = request.state
    how = state.sampling
    return Block(request.length, request.tip, max(how.temperature, 0.0), how.seed, state.length + 1)
