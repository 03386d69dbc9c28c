"""Attention of one new token a row over a static cache, on a GPU.

Reads exactly the keys up to the position, so one captured graph serves every position.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

#: Keys in a tile, and query rows that a matrix instruction takes at least.
TILE = 64
QUERY_ROWS = 16


@triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]
def _attend(  # type: ignore[no-untyped-def]  # noqa: ANN202, PLR0913, PLR0917
    q,  # noqa: ANN001
    k,  # noqa: ANN001
    v,  # noqa: ANN001
    out,  # noqa: ANN001
    position,  # noqa: ANN001
    window,  # noqa: ANN001
    length,  # noqa: ANN001
    scale,  # noqa: ANN001
    SHARE: tl.constexpr,
    DIM: tl.constexpr,
    TILE_KEYS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One key head of one row: an online softmax (arXiv 1805.02867) over tiles of keys."""
    pair = tl.program_id(0).to(tl.int64)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    own = rows[:, None] < SHARE
    at = pair * SHARE * DIM + rows[:, None] * DIM + dims[None, :]
    query = tl.load(q + at, mask=own, other=0.0)
    upto = tl.load(position).to(tl.int32) + 1
    first = tl.maximum(upto - window, 0)
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, DIM], tl.float32)
    base = pair * length * DIM
    for start in range(first // TILE_KEYS * TILE_KEYS, upto, TILE_KEYS):
        keys = start + tl.arange(0, TILE_KEYS)
        seen = (keys >= first) & (keys < upto)
        cell = base + keys[:, None] * DIM + dims[None, :]
        key = tl.load(k + cell, mask=seen[:, None], other=0.0)
        value = tl.load(v + cell, mask=seen[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where(seen[None, :], scores, -float("inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        kept = tl.exp(best - higher)
        total = total * kept + tl.sum(weights, 1)
        mixed = mixed * kept[:, None] + tl.dot(weights.to(value.dtype), value)
        best = higher
    result = (mixed / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + at, result, mask=own)


def attend_cached(q: Tensor, k: Tensor, v: Tensor, position: Tensor, window: int | None) -> Tensor:
    """Attend queries [B, g, r, d] to cached keys and values [B, g, T, d] up to a position.

    Args:
        q: queries that share a key head are its rows.
        k: cached keys, contiguous.
        v: cached values, contiguous.
        position: int64 [1], the last position seen.
        window: how many positions are seen, None for all.
    """
    b, g, share, dim = q.shape
    if not (k.is_contiguous() and v.is_contiguous()):
        raise ValueError("keys and values must be contiguous")
    if share > QUERY_ROWS:
        raise ValueError(f"{share} query heads share a key head; at most {QUERY_ROWS} can")
    q = q.contiguous()
    out = torch.empty_like(q)
    length = k.shape[2]
    reach = length + 1 if window is None else window
    _attend[(b * g,)](
        q, k, v, out, position, reach, length, dim**-0.5, share, dim, TILE, QUERY_ROWS, num_warps=2
    )
    return out
