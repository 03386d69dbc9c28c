"""What the rows of blocks see, and attention under such a mask.

A block of R rows starts at an anchor: the token at position a, already decided, whose own features
do not exist yet. Context is strictly before the anchor; row j stands at position a + j.

Shapes: B conversations, S positions, N blocks a conversation, M = N R block rows a conversation, h
query heads, g key/value heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

#: What block rows see: bool [B, 1, M, S + M], or the same in tiles for flex_attention.
Mask = Tensor | BlockMask


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


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Masked attention, q [B, h, M, d] over k and v [B, g, S + M, d] to [B, h, M, d]."""
    if isinstance(mask, BlockMask):
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
