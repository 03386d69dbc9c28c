"""What drafters of whole blocks give to the operator table, and their operators composed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import index_range, token_ids

if TYPE_CHECKING:
    from outrider.kernels.table import Kernels, Linear, PageStore, Stack


@dataclass(frozen=True)
class Chain:
    """A low-rank bias by the token before, for walking along a block from left to right.

    Attributes:
        tokens: embedding [V, r] of the token before, by target id.
        out: projection [V', r] to the bias of every draft id.
        ids: target id of every draft id, int64 [V'], or None if they are the same.
    """

    tokens: Linear
    out: Linear
    ids: Tensor | None


@dataclass(frozen=True)
class Block:
    """Consecutive rows of scores that are walked together.

    Attributes:
        length: how many rows.
        tip: target id before the first row.
        temperature: 0 takes the best score, else scores are drawn from.
        seed: key of the noise.
        position: absolute position of the first row's token.
    """

    length: int
    tip: int
    temperature: float = 0.0
    seed: int = 0
    position: int = 0


@dataclass(frozen=True)
class Sketch:
    """The weights that turn a tip into a drafted block.

    Attributes:
        stack: the block's decoder layers.
        embedding: token embeddings [V, H].
        scale: factor of a tip's embedding.
        masks: a block's rows before its tip is set, float32 [b, H].
        first: block row that predicts the first token.
        norm: RMS norm weight [H] after the layers.
        head: projection [V', H] to scores over draft ids.
        chain: bias by the token before.
        confidence: weights of a row's state, of ``chain.tokens[previous]``, and a bias, float32
            [H + r + 1]: confidence is the sigmoid of their product. None without such a head.
    """

    stack: Stack
    embedding: Linear
    scale: float
    masks: Tensor
    first: int
    norm: Tensor
    head: Linear
    chain: Chain
    confidence: Tensor | None


@dataclass(frozen=True)
class ContextWeights:
    """The weights that turn a target's tapped states into context rows of all layers.

    Attributes:
        fc: projection [H, taps H].
        norm: RMS norm weight [H].
        keys_values: projection [layers 2 g d, H]: keys and values of layer 0, then of layer 1, ...
    """

    fc: Linear
    norm: Tensor
    keys_values: Linear


def walk(kernels: Kernels, chain: Chain, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
    """``Kernels.walk`` from elementary operators."""
    chosen: list[int] = []
    for block in blocks:
        previous = block.tip
        for step in range(block.length):
            embedded = kernels.embed(chain.tokens, token_ids([previous], scores.device))
            row = scores[len(chosen)] + kernels.linear(embedded, chain.out)[0]
            index = _choose(kernels, row, chain.ids, block, step)
            previous = index if chain.ids is None else int(chain.ids[index])
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
    kernels: Kernels, sketch: Sketch, rows: Rows, store: PageStore, blocks: Sequence[Block]
) -> tuple[Tensor, Tensor]:
    """``Kernels.draft_blocks`` from other operators."""
    size = len(sketch.masks)
    block_rows = sketch.masks.repeat(len(blocks), 1)
    tips = token_ids([block.tip for block in blocks], block_rows.device)
    block_rows[::size] = kernels.embed(sketch.embedding, tips) * sketch.scale
    states = kernels.run_block(sketch.stack, block_rows, rows, store)
    kept = [
        states[index * size + sketch.first :][: block.length] for index, block in enumerate(blocks)
    ]
    hidden = kernels.rms_norm(torch.cat(kept), sketch.norm, sketch.stack.eps)
    chosen = kernels.walk(sketch.chain, kernels.linear(hidden, sketch.head), blocks)
    return chosen, _confidences(kernels, sketch, hidden, blocks, chosen.tolist())


def _confidences(
    kernels: Kernels, sketch: Sketch, hidden: Tensor, blocks: Sequence[Block], chosen: list[int]
) -> Tensor:
    if sketch.confidence is None:
        sure = torch.ones(len(hidden), dtype=torch.float32, device=hidden.device)
    else:
        before: list[int] = []
        for block in blocks:
            at = len(before)
            before += [block.tip, *chosen[at : at + block.length - 1]]
        tokens = token_ids(before[: len(hidden)], hidden.device)
        embedded = kernels.embed(sketch.chain.tokens, tokens)
        read = torch.cat([hidden, embedded], dim=-1)
        sure = ((read * sketch.confidence[:-1]).sum(-1) + sketch.confidence[-1]).sigmoid()
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
