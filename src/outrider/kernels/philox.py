"""Philox4x32-10, the counter-based generator (Salmon et al., SC 2011), and noise drawn from it.

A draw is a pure function of its key and counter: no state, hence nothing that batching, drafting
or preemption could advance.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_ROUND_0: Final = np.uint64(0xD2511F53)
_ROUND_1: Final = np.uint64(0xCD9E8D57)
_WEYL_0: Final = 0x9E3779B9
_WEYL_1: Final = 0xBB67AE85
_LOW: Final = np.uint64(0xFFFFFFFF)
_SHIFT: Final = np.uint64(32)

#: Streams keep the draws of different purposes apart under one seed.
STREAM_TOKEN: Final = 0
STREAM_DRAFT: Final = 1
STREAM_ACCEPT: Final = 2

Words = NDArray[np.uint64]


def philox(key: int, counter: tuple[Words | int, Words | int, Words | int, int]) -> list[Words]:
    """Ten rounds of Philox4x32.

    Args:
        key: 64 bits; the low half is the first key word.
        counter: four 32-bit words, arrays that broadcast together or integers.

    Returns:
        Four arrays of 32-bit words held in uint64.
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, dtype=np.uint64) for word in counter))
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c0 * _ROUND_0, c2 * _ROUND_1
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def _open_unit(words: Words) -> NDArray[np.float64]:
    """Map 32-bit words into (0, 1), both ends excluded."""
    return (words.astype(np.float64) + 0.5) / 2.0**32


def gumbel_noise(seed: int, stream: int, position: int, ids: NDArray[Any]) -> NDArray[np.float32]:
    """Standard Gumbel noise of every id, keyed by (seed, stream, position, id)."""
    word = philox(seed, (ids.astype(np.uint64), position, stream, 0))[0]
    noise: NDArray[np.float32] = (-np.log(-np.log(_open_unit(word)))).astype(np.float32)
    return noise


def uniform(seed: int, stream: int, counter: int) -> float:
    """One uniform draw in (0, 1), keyed by (seed, stream, counter)."""
    word = philox(seed, (0, counter & 0xFFFFFFFF, stream, counter >> 32))[0]
    return float(_open_unit(word))
