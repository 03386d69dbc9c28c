"""The operators of block drafters, composed of others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.kernels.handles import BlockDrafter, ContextProjection, MarkovBias, PageStore, own
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range, token_ids
from outrider.kernels.values import Block, BlockDraftWeights, ContextWeights, MarkovWeights


class ComposedContext(ContextProjection):
    """A projection that keeps the values it was made of."""

    def __init__(self, weights: ContextWeights) -> None:
        self.weights = weights


class ComposedMarkovBias(MarkovBias):
    """A bias that keeps the values it was made of."""

    def __init__(self, weights: MarkovWeights) -> None:
        self.weights = weights


class ComposedBlockDrafter(BlockDrafter):
    """A drafter that keeps the values it was made of.

    Attributes:
        weights: those values.
        markov: their bias, prepared.
    """

    def __init__(self, weights: BlockDraftWeights, markov: MarkovBias) -> None:
        self.weights = weights
        self.markov = markov


class ComposedDrafting(Kernels):
    """The operators of block drafters, from those that a subclass adds."""

    def prepare_context(self, weights: ContextWeights) -> ContextProjection:
        """Keep the weights."""
        return ComposedContext(weights)

    def prepare_markov_bias(self, weights: MarkovWeights) -> MarkovBias:
        """Keep the weights."""
        return ComposedMarkovBias(weights)

    def prepare_block_drafter(self, weights: BlockDraftWeights) -> BlockDrafter:
        """Keep the weights."""
        return ComposedBlockDrafter(weights, self.prepare_markov_bias(weights.markov))

    def ingest(
        self, context: ContextProjection, taps: Tensor, rows: Rows, store: PageStore
    ) -> None:
        """Project, norm, project, write."""
        w = own(context, ComposedContext).weights
        normed = self.rms_norm(self.linear(taps, w.fc), w.norm, w.stack.eps)
        self.write_context(w.stack, self.linear(normed, w.keys_values), rows, store)

    def markov_decode(self, markov: MarkovBias, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Choose row by row."""
        w = own(markov, ComposedMarkovBias).weights
        chosen: list[int] = []
        for block in blocks:
            previous = block.tip
            for step in range(block.length):
                embedded = self.embed(w.tokens, token_ids([previous], scores.device))
                row = scores[len(chosen)] + self.linear(embedded, w.out)[0]
                index = self._choose(row, w.ids, block, step)
                previous = index if w.ids is None else int(w.ids[index])
                chosen.append(previous)
        return token_ids(chosen)

    def _choose(self, scores: Tensor, ids: Tensor | None, block: Block, step: int) -> int:
        """Index of the best or drawn score, the lowest on ties."""
        values = scores.cpu().numpy()
        if block.temperature > 0:
            ids = index_range(0, len(values)) if ids is None else ids
            noise = self.gumbel(block.seed, STREAM_TOKEN, block.position + step, ids)
            values = values / np.float32(block.temperature) + noise.cpu().numpy()
        return int(np.argmax(values))

    def draft_blocks(
        self, drafter: BlockDrafter, rows: Rows, store: PageStore, blocks: Sequence[Block]
    ) -> tuple[Tensor, Tensor]:
        """Run one operator after the other."""
        held = own(drafter, ComposedBlockDrafter)
        w, size = held.weights, len(held.weights.masks)
        block_rows = w.masks.repeat(len(blocks), 1)
        tips = token_ids([block.tip for block in blocks], block_rows.device)
        block_rows[::size] = self.embed(w.embedding, tips) * w.scale
        states = self.run_block(w.stack, block_rows, rows, store)
        kept = [
            states[index * size + w.first :][: block.length] for index, block in enumerate(blocks)
        ]
        hidden = self.rms_norm(torch.cat(kept), w.norm, w.stack.eps)
        chosen = self.markov_decode(held.markov, self.linear(hidden, w.head), blocks)
        return chosen, self._confidences(w, hidden, blocks, chosen.tolist())

    def _confidences(
        self, w: BlockDraftWeights, hidden: Tensor, blocks: Sequence[Block], chosen: list[int]
    ) -> Tensor:
        if w.confidence is None:
            sure = torch.ones(len(hidden), dtype=torch.float32, device=hidden.device)
        else:
            before: list[int] = []
            for block in blocks:
                at = len(before)
                before += [block.tip, *chosen[at : at + block.length - 1]]
            tokens = token_ids(before[: len(hidden)], hidden.device)
            embedded = self.embed(w.markov.tokens, tokens)
            read = torch.cat([hidden, embedded], dim=-1)
            sure = ((read * w.confidence[:-1]).sum(-1) + w.confidence[-1]).sigmoid()
        return torch.where(hidden.sum(-1).isfinite(), sure, torch.nan)
