"""Rotary tables. Frequencies are computed in float64 and rounded once."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.config.rotary import RotaryConfig
from outrider.kernels.values import RotaryTable

Frequencies = NDArray[np.float64]

#: Positions whose angles are computed together.
_POSITIONS: Final = 1 << 14


def rotary_table(config: RotaryConfig, head_dim: int, positions: int) -> RotaryTable:
    """Cosine and sine of positions 0 .. positions - 1, float32 [positions, head_dim / 2]."""
    frequencies, scale = frequencies_of(config, head_dim)
    cos = np.empty((positions, head_dim // 2), dtype=np.float32)
    sin = np.empty_like(cos)
    # Some positions at a time: a long context in float64 would take several times its table.
    for first in range(0, positions, _POSITIONS):
        rows = slice(first, min(first + _POSITIONS, positions))
        angles = np.arange(rows.start, rows.stop, dtype=np.float64)[:, None] * frequencies[None]
        cos[rows], sin[rows] = np.cos(angles) * scale, np.sin(angles) * scale
    return RotaryTable(torch.from_numpy(cos), torch.from_numpy(sin))


def frequencies_of(config: RotaryConfig, head_dim: int) -> tuple[Frequencies, float]:
    """Angular frequency of every pair [head_dim / 2], and the factor of cosine and sine.

    The base series is theta^(-2 i / d) (arXiv 2104.09864).
    """
    base = config.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if config.kind == "linear":
        return base / config.factor, 1.0
    if config.kind == "divided":
        return base / np.array(config.divisors, dtype=np.float64), 1.0
    if config.kind == "llama3":
        return _llama3(config, base), 1.0
    if config.kind == "yarn":
        return _yarn(config, base, head_dim), _yarn_scale(config)
    return base, 1.0


def _llama3(config: RotaryConfig, base: Frequencies) -> Frequencies:
    """Llama 3.1's rule: scale long wavelengths, keep short ones, blend between."""
    turns = config.original_max_position * base / (2 * math.pi)
    span = config.high_freq_factor - config.low_freq_factor
    blend = np.clip((turns - config.low_freq_factor) / span, 0.0, 1.0)
    return base * (blend + (1.0 - blend) / config.factor)


def _yarn(config: RotaryConfig, base: Frequencies, head_dim: int) -> Frequencies:
    """YaRN's "NTK-by-parts" interpolation (arXiv 2309.00071, section 3.2)."""

    def dimension(rotations: float) -> float:
        wavelengths = config.original_max_position / (rotations * 2 * math.pi)
        return head_dim * math.log(wavelengths) / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    ramp = np.clip((np.arange(head_dim // 2, dtype=np.float64) - low) / width, 0.0, 1.0)
    return base / config.factor * ramp + base * (1.0 - ramp)


def _yarn_scale(config: RotaryConfig) -> float:
    """YaRN's attention factor: 0.1 ln(factor) + 1, or a ratio of such terms (arXiv 2309.00071)."""
    if config.attention_factor is not None:
        return config.attention_factor

    def term(mscale: float) -> float:
        return 0.1 * mscale * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0

    if config.mscale and config.mscale_all_dim:
        return term(config.mscale) / term(config.mscale_all_dim)
    return term(1.0)
