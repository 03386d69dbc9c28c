"""Batches of blocks: anchors drawn from conversations, their labels, and what their rows see.

A block of R rows starts at an anchor: the token at position a, already decided, whose own features
do not exist yet. Context is strictly before the anchor; row j stands at position a + j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


@dataclass(frozen=True)
class Batch:
    """Blocks of one training step.

    Attributes:
        ids: int64 [B, S].
        supervised: bool [B, S].
        anchors: int64 [B, N], ascending; rows with too few anchors hold invalid ones, whose labels
            are not live.
    """

    ids: Tensor
    supervised: Tensor
    anchors: Tensor


@dataclass(frozen=True)
class Labels:
    """What the K drafts of each block should be.

    Attributes:
        tokens: int64 [B, N, K], the tokens at positions a + 1 .. a + K.
        previous: int64 [B, N, K], the token before each.
        at: int64 [B, N, K], position whose target state predicts each.
        live: bool [B, N, K], whether the token and all before it in the block are answer tokens.
    """

    tokens: Tensor
    previous: Tensor
    at: Tensor
    live: Tensor


def draw_anchors(supervised: Tensor, count: int) -> Tensor:
    """Draw anchors uniformly without replacement, int64 [B, count], ascending.

    An anchor is an answer token that an answer token follows, as in every round of a real session.
    """
    possible = supervised[:, :-1] & supervised[:, 1:]
    score = torch.rand(possible.shape, dtype=torch.float32, device=supervised.device) + possible
    return score.topk(min(count, possible.shape[1]), dim=1).indices.sort(1).values


def labels_of(batch: Batch, drafts: int, shift: int = 1) -> Labels:
    """Labels of every block; ``shift`` is 1, the distance from the anchor to the first draft."""
    b, n = batch.anchors.shape
    last = batch.ids.shape[1] - 1
    offset = torch.arange(drafts, dtype=torch.int64, device=batch.ids.device) + shift
    position = batch.anchors[..., None] + offset
    inside = position <= last
    position = position.clamp(max=last)
    at = (position - 1).clamp(min=0)

    def gather(source: Tensor, index: Tensor) -> Tensor:
        return source.gather(1, index.view(b, -1)).view(b, n, drafts)

    anchored = batch.supervised.gather(1, batch.anchors)[..., None]
    live = gather(batch.supervised, position) & inside & anchored
    return Labels(
        tokens=gather(batch.ids, position),
        previous=gather(batch.ids, at),
        at=at,
        live=live.long().cumprod(-1).bool(),
    )


def block_mask(anchors: Tensor, rows: int, length: int, window: int | None, causal: bool) -> Tensor:
    """What block rows see: bool [B, 1, N R, S + N R], context first, then all blocks' rows.

    A row sees context strictly before its own anchor and the rows of its own block: those up to
    itself if ``causal``, else all; within ``window`` of its position if there is one.
    """
    b, n = anchors.shape
    device = anchors.device
    offset = torch.arange(rows, dtype=torch.int64, device=device)
    anchor = anchors.repeat_interleave(rows, 1)
    position = (anchors[..., None] + offset).view(b, n * rows)
    context = torch.arange(length, dtype=torch.int64, device=device)
    seen = context[None, None] < anchor[..., None]
    owner = torch.arange(n, dtype=torch.int64, device=device).repeat_interleave(rows)
    row = offset.repeat(n)
    own = owner[:, None] == owner[None]
    if causal:
        own = own & (row[None] <= row[:, None])
    if window is not None:
        seen = seen & (position[..., None] - context < window)
        own = own & ((row[None] - row[:, None]).abs() < window)
    return torch.cat([seen, own.expand(b, -1, -1)], -1)[:, None]


@lru_cache(maxsize=1)
def _tiler() -> Callable[..., BlockMask]:
    return torch.compile(create_block_mask)


def tiled_block_mask(
    anchors: Tensor, rows: int, length: int, window: int | None, causal: bool
) -> BlockMask:
    """The mask of ``block_mask`` in tiles: flex_attention skips those that no row sees."""
    b, n = anchors.shape
    reach = length + n * rows if window is None else window

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        anchor = anchors[batch, query // rows]
        row, other = query % rows, (key - length) % rows
        context = (key < length) & (key < anchor) & (anchor + row - key < reach)
        own = (key >= length) & ((key - length) // rows == query // rows)
        own = own & ((other - row).abs() < reach)
        if causal:
            own = own & (other <= row)
        return context | own

    return _tiler()(seen, b, None, n * rows, length + n * rows, device=anchors.device)
