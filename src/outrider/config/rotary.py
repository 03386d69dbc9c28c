"""Rotary position embedding parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RotaryKind = Literal["default", "linear", "llama3", "yarn", "divided"]


@dataclass(frozen=True)
class RotaryConfig:
    """Parameters of a rotary embedding, named as in Hugging Face's ``rope_scaling``.

    Attributes:
        theta: base of the geometric frequency series.
        kind: which scaling rule applies; "divided" is any other that a GGUF file lists by its
            results.
        factor: context extension factor (linear, llama3, yarn).
        original_max_position: trained context length (llama3, yarn).
        low_freq_factor: llama3: wavelengths above ``original / low`` are scaled fully.
        high_freq_factor: llama3: wavelengths below ``original / high`` are left alone.
        beta_fast: yarn: rotations above which a dimension is left alone.
        beta_slow: yarn: rotations below which a dimension is scaled fully.
        attention_factor: yarn: multiplies cosine and sine; None derives it from ``factor``.
        mscale: yarn: optional numerator of the derived attention factor.
        mscale_all_dim: yarn: optional denominator of the derived attention factor.
        truncate: yarn: round the correction range to whole dimensions.
        divisors: divided: what each pair's frequency is divided by, head_dim / 2 of them.
    """

    theta: float = 10000.0
    kind: RotaryKind = "default"
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    divisors: tuple[float, ...] = ()
