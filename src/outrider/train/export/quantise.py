"""Matrices in GGUF's blocks: 32 weights of a row that share a float16 scale."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BLOCK: Final = 32
#: Largest integer of 4 bits.
TOP: Final = 15
#: Ends of a block's range that Q4_1 tries, as shares of its half-range to either side.
CLIPS: Final = tuple(np.linspace(0.7, 1.0, 9, dtype=np.float32))
#: Rounds of least squares after the best ends are known; more than these change nothing.
REFINEMENTS: Final = 4
#: Blocks worked on together, so that they stay in the cache.
PIECE: Final = 4096


def quantize_q8_0(weight: Tensor) -> Tensor:
    """Q8_0 blocks: a float16 scale, then 32 signed bytes.

    Args:
        weight: float32 [rows, K], K a multiple of 32.

    Returns:
        uint8 [rows, K / 32 * 34].
    """
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    _check(weight)
    return torch.from_numpy(quantize(weight.numpy(), GGMLQuantizationType.Q8_0))


def quantize_q4_1(weight: Tensor) -> Tensor:
    """Q4_1 blocks: float16 scale and minimum, then 32 integers q of 4 bits for scale q + minimum.

    The squared error of a block is what is minimised: over ranges that may be clipped at either
    end, then by turns over the integers and over scale and minimum.

    Args:
        weight: float32 [rows, K], K a multiple of 32.

    Returns:
        uint8 [rows, K / 32 * 20]; byte i of a block's 16 holds weights i (low bits) and i + 16.
    """
    _check(weight)
    blocks = weight.numpy().reshape(-1, BLOCK)
    pieces = [_q4_1(blocks[at : at + PIECE]) for at in range(0, len(blocks), PIECE)]
    return torch.from_numpy(np.concatenate(pieces).reshape(len(weight), -1))


def _check(weight: Tensor) -> None:
    if weight.shape[1] % BLOCK:
        raise ValueError(f"rows of {weight.shape[1]} do not fill blocks of {BLOCK}")


def _q4_1(blocks: Floats) -> Bytes:
    """Packed blocks, float32 [n, 32] to uint8 [n, 20]."""
    scale, minimum = _search(blocks)
    q = _integers(blocks, scale, minimum).astype(np.uint8)
    halves = [part.astype(np.float16).view(np.uint8) for part in (scale, minimum)]
    return np.concatenate([*halves, q[:, : BLOCK // 2] | q[:, BLOCK // 2 :] << 4], 1)


def _search(blocks: Floats) -> tuple[Floats, Floats]:
    """Scales and minima, float32 [n, 1], with the least squared error that was found."""
    low, high = blocks.min(1, keepdims=True), blocks.max(1, keepdims=True)
    middle, half = (low + high) / 2, (high - low) / 2
    scale, minimum = _half(2 * half / TOP), _half(low)
    error = _error(blocks, scale, minimum)
    for below in CLIPS:
        for above in CLIPS:
            tried = _half(half * (below + above) / TOP), _half(middle - half * below)
            scale, minimum, error = _better(blocks, (scale, minimum, error), *tried)
    for _ in range(REFINEMENTS):
        tried = _least_squares(blocks, _integers(blocks, scale, minimum))
        scale, minimum, error = _better(blocks, (scale, minimum, error), *tried)
    return scale, minimum


def _better(
    blocks: Floats, best: tuple[Floats, Floats, Floats], scale: Floats, minimum: Floats
) -> tuple[Floats, Floats, Floats]:
    """The best scales, minima and errors, [n, 1] each, after one more pair was tried."""
    error = _error(blocks, scale, minimum)
    found = error < best[2]
    tried = (scale, minimum, error)
    new = [np.where(found, one, other) for one, other in zip(tried, best, strict=True)]
    return new[0], new[1], new[2]


def _error(blocks: Floats, scale: Floats, minimum: Floats) -> Floats:
    """Squared error of every block, [n, 1]."""
    off = _integers(blocks, scale, minimum) * scale + minimum - blocks
    error: Floats = np.square(off).sum(1, keepdims=True)
    return error


def _integers(blocks: Floats, scale: Floats, minimum: Floats) -> Floats:
    """Nearest integers within 0 .. 15, as float32 [n, 32]; a scale of 0 has only zeros."""
    steps = (blocks - minimum) / np.where(scale == 0, np.float32(np.inf), scale)
    return np.clip(np.rint(steps), 0, TOP)


def _least_squares(blocks: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Scales and minima, [n, 1], that fit integers [n, 32] best."""
    mean, mean_q = blocks.mean(1, keepdims=True), q.mean(1, keepdims=True)
    spread = np.square(q - mean_q).sum(1, keepdims=True)
    together = ((q - mean_q) * (blocks - mean)).sum(1, keepdims=True)
    scale = _half(together / np.where(spread == 0, np.float32(1), spread))
    return scale, _half(mean - scale * mean_q)


def _half(values: Floats) -> Floats:
    """Values that float16 can hold, as float32."""
    return values.astype(np.float16).astype(np.float32)
