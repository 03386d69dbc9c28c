"""Rotary frequencies against values worked out by hand, and against transformers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from outrider.config.rotary import RotaryConfig
from outrider.models import rotary
from outrider.models.rotary import frequencies_of, rotary_table

DIM = 32
THETA = 10000.0
LENGTH = 4096
BASE = np.array([THETA ** (-2 * pair / DIM) for pair in range(DIM // 2)])


def rotations(pair: float, theta: float = THETA) -> float:
    """How often a pair turns within the trained length."""
    return LENGTH / (2 * math.pi) * theta ** (-2 * pair / DIM)


def yarn(fast: float, slow: float, **changes: Any) -> RotaryConfig:
    """YaRN by four whose ramp begins at one pair and ends at another."""
    values = {"beta_fast": rotations(fast), "beta_slow": rotations(slow), "truncate": False}
    return RotaryConfig(THETA, "yarn", 4.0, LENGTH, **(values | changes))


def scaled_share(config: RotaryConfig) -> list[float]:
    """How much of each pair is interpolated: 0 leaves it alone, 1 divides it by the factor."""
    base = np.array([config.theta ** (-2 * pair / DIM) for pair in range(DIM // 2)])
    found = frequencies_of(config, DIM)[0]
    return [float(share) for share in (1 - found / base) / (1 - 1 / config.factor)]


def test_the_base_series() -> None:
    found, scale = frequencies_of(RotaryConfig(THETA), DIM)
    assert found == pytest.approx(BASE, rel=1e-12)
    assert scale == 1.0


def test_linear_and_divided() -> None:
    found, scale = frequencies_of(RotaryConfig(THETA, "linear", 4.0), DIM)
    assert found == pytest.approx(BASE / 4)
    assert scale == 1.0
    divisors = tuple(range(1, DIM // 2 + 1))
    config = RotaryConfig(THETA, "divided", divisors=tuple(map(float, divisors)))
    found, scale = frequencies_of(config, DIM)
    assert found == pytest.approx(BASE / np.array(divisors))
    assert scale == 1.0


def test_llama3_blends_between_its_two_wavelengths() -> None:
    """Pair 2 turns ``high`` times, pair 6 ``low`` times; turns at 0.5 lie half way."""
    low, high = rotations(6), rotations(2)
    config = RotaryConfig(THETA, "llama3", 8.0, LENGTH, low_freq_factor=low, high_freq_factor=high)
    found, scale = frequencies_of(config, DIM)
    assert scale == 1.0
    blend = np.clip([(rotations(pair) - low) / (high - low) for pair in range(DIM // 2)], 0, 1)
    assert found == pytest.approx(BASE * (blend + (1 - blend) / 8))
    assert found[:3] == pytest.approx(BASE[:3])
    assert found[6:] == pytest.approx(BASE[6:] / 8)
    assert BASE[3] / 8 < found[3] < BASE[3]


def test_yarn_ramps_from_the_fast_pair_to_the_slow_one() -> None:
    wanted = [0, 0, 0, 0.25, 0.5, 0.75, *[1] * 10]
    assert scaled_share(yarn(2, 6)) == pytest.approx(wanted, abs=1e-9)


def test_yarn_rounds_the_ramp_outwards_where_it_is_told_to() -> None:
    wanted = [0, 0, 0, 0.25, 0.5, 0.75, *[1] * 10]
    assert scaled_share(yarn(2.5, 5.5, truncate=True)) == pytest.approx(wanted, abs=1e-9)
    exact = [0, 0, 0, 0.5 / 3, 1.5 / 3, 2.5 / 3, *[1] * 10]
    assert scaled_share(yarn(2.5, 5.5)) == pytest.approx(exact, abs=1e-9)


def test_yarn_bounds_the_ramp_by_the_head() -> None:
    """The end of the ramp is bounded by ``head_dim - 1``, past the last pair."""
    ends_late = scaled_share(yarn(1, 40))
    assert ends_late == pytest.approx([max(0, pair - 1) / (DIM - 2) for pair in range(DIM // 2)])
    last = scaled_share(yarn(1, DIM - 1))
    assert last == pytest.approx(ends_late)
    begins_early = scaled_share(yarn(-3, 8))
    assert begins_early == pytest.approx([min(pair / 8, 1) for pair in range(DIM // 2)])


def test_yarn_without_a_ramp_steps_after_its_pair() -> None:
    assert scaled_share(yarn(4, 4)) == pytest.approx([*[0] * 5, *[1] * 11], abs=1e-9)


def test_yarn_scales_cosine_and_sine() -> None:
    def scale(factor: float = 4.0, **changes: Any) -> float:
        config = RotaryConfig(THETA, "yarn", factor, LENGTH, **changes)
        return frequencies_of(config, DIM)[1]

    assert scale() == pytest.approx(1 + 0.1 * math.log(4))
    assert scale(1.0) == 1.0
    assert scale(attention_factor=1.5, mscale=2.0, mscale_all_dim=1.0) == 1.5
    ratio = (1 + 0.2 * math.log(4)) / (1 + 0.05 * math.log(4))
    assert scale(mscale=2.0, mscale_all_dim=0.5) == pytest.approx(ratio)
    assert scale(mscale=2.0) == scale(mscale_all_dim=0.5) == scale()


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    ("theta", "length", "fast", "slow"),
    [
        (10000.0, 4096, 32.0, 1.0),
        (1e6, 32768, 32.0, 1.0),
        (10.0, 4096, 32.0, 1.0),  # the ramp would end past the head
        (10000.0, 8, 32.0, 1.0),  # and here it would begin before it
        (500000.0, 8192, 16.0, 2.0),
    ],
)
def test_yarn_is_what_transformers_makes_of_it(
    theta: float, length: int, fast: float, slow: float, truncate: bool
) -> None:
    table = {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": 8.0,
        "original_max_position_embeddings": length,
        "beta_fast": fast,
        "beta_slow": slow,
        "truncate": truncate,
    }
    oracle = SimpleNamespace(
        head_dim=DIM,
        hidden_size=DIM,
        num_attention_heads=1,
        max_position_embeddings=8 * length,
        rope_theta=theta,
        rope_scaling=table,
        rope_parameters=table,
        standardize_rope_params=lambda: None,
    )
    wanted, factor = ROPE_INIT_FUNCTIONS["yarn"](oracle, torch.device("cpu"))
    config = RotaryConfig(
        theta, "yarn", 8.0, length, beta_fast=fast, beta_slow=slow, truncate=truncate
    )
    found, scale = frequencies_of(config, DIM)
    assert found == pytest.approx(wanted.double().numpy(), rel=2e-6)
    assert scale == pytest.approx(factor)


@pytest.mark.parametrize("piece", [1, 3, 5, 8, 1 << 14])
def test_the_table_holds_every_position(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many positions are computed together."""
    monkeypatch.setattr(rotary, "_POSITIONS", piece)
    config = yarn(2, 6)
    frequencies, scale = frequencies_of(config, DIM)
    table = rotary_table(config, DIM, 8)
    angles = np.arange(8)[:, None] * frequencies[None]
    assert table.cos.shape == table.sin.shape == (8, DIM // 2)
    assert np.array_equal(table.cos.numpy(), (np.cos(angles) * scale).astype(np.float32))
    assert np.array_equal(table.sin.numpy(), (np.sin(angles) * scale).astype(np.float32))
