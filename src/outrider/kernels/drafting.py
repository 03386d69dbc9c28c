"""The operators of drafters that draft whole blocks, composed of elementary ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.kernels.handles import PageStore
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range, token_ids
from outrider.kernels.values import Block, BlockDraftWeights, MarkovBias, Stack


def markov_decode(
    kernels: Kernels, markov: MarkovBias, scores: Tensor, blocks: Sequence[Block]
) -> Tensor:
    """``Kernels.markov_decode`` from elementary operators."""
    chosen: list[int] = []
    for block in blocks:
        previous = block.tip
        for step in range(block.length):
            embedded = kernels.embed(markov.tokens, token_ids([previous], scores.device))
            row = scores[len(chosen)] + kernels.linear(embedded, markov.out)[0]
            index = _choose(kernels, row, markov.ids, block, step)
            previous = index if markov.ids is None else int(markov.ids[index])
            chosen.append(previous)
    return token_ids(chosen)


def _choose(kernels: Kernels, scores: Tensor, ids: Tensor | None, block: Block, step: int) -> int:
    """Index of the best or drawn score, the lowest on ties."""
    values = scores.cpu().numpy()
    if block.temperature > 0:
        ids = index_range(0, len(values)) if ids is None else ids
        noise = kernels.gumbel(block.seed, STREAM_TOKEN, block.position + step, ids)
        values = values / np.float32(block.temperature) + noise.cpu().numpy()
    return int(np.argmax(values))


def draft_blocks(
    kernels: Kernels,
    weights: BlockDraftWeights,
    rows: Rows,
    store: PageStore,
    blocks: Sequence[Block],
) -> tuple[Tensor, Tensor]:
    """``Kernels.draft_blocks`` from other operators."""
    size = len(weights.masks)
    block_rows = weights.masks.repeat(len(blocks), 1)
    tips = token_ids([block.tip for block in blocks], block_rows.device)
    block_rows[::size] = kernels.embed(weights.embedding, tips) * weights.scale
    states = kernels.run_block(weights.stack, block_rows, rows, store)
    kept = [
        states[index * size + weights.first :][: block.length] for index, block in enumerate(blocks)
    ]
    hidden = kernels.rms_norm(torch.cat(kept), weights.norm, weights.stack.eps)
    chosen = kernels.markov_decode(weights.markov, kernels.linear(hidden, weights.head), blocks)
    return chosen, _confidences(kernels, weights, hidden, blocks, chosen.tolist())


def _confidences(
    kernels: Kernels,
    weights: BlockDraftWeights,
    hidden: Tensor,
    blocks: Sequence[Block],
    chosen: list[int],
) -> Tensor:
    if weights.confidence is None:
        sure = torch.ones(len(hidden), dtype=torch.float32, device=hidden.device)
    else:
        before: list[int] = []
        for block in blocks:
            at = len(before)
            before += [block.tip, *chosen[at : at + block.length - 1]]
        tokens = token_ids(before[: len(hidden)], hidden.device)
        embedded = kernels.embed(weights.markov.tokens, tokens)
        read = torch.cat([hidden, embedded], dim=-1)
        sure = ((read * weights.confidence[:-1]).sum(-1) + weights.confidence[-1]).sigmoid()
    return torch.where(hidden.sum(-1).isfinite(), sure, torch.nan)


def write_context(
    kernels: Kernels, stack: Stack, flat: Tensor, rows: Rows, store: PageStore
) -> None:
    """``Kernels.write_context`` layer by layer."""
    g, d = stack.num_kv_heads, stack.head_dim
    parts = flat.reshape(flat.shape[0], len(stack.layers), 2, g, d)
    for index, layer in enumerate(stack.layers):
        k, v = parts[:, index, 0].contiguous(), parts[:, index, 1].contiguous()
        if layer.k_norm is not None:
            k = kernels.rms_norm(k, layer.k_norm, stack.eps)
        kernels.write(store, index, kernels.rotate(k, rows.positions, stack.rotary), v, rows)
