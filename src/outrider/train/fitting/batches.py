"""Batches of blocks: anchors drawn from conversations, and their labels.

A block starts at an anchor: the token at position a, already decided. Shapes: B conversations, S
positions, N blocks a conversation, K drafts a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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


def labels_of(batch: Batch, drafts: int) -> Labels:
    """Labels of every block of ``drafts`` drafts."""
    b, n = batch.anchors.shape
    last = batch.ids.shape[1] - 1
    offset = torch.arange(drafts, dtype=torch.int64, device=batch.ids.device) + 1
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
