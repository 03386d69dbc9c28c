"""Samplers against plain statements of what they mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from outrider.kernels.philox import gumbel_noise, philox, uniform
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams
from outrider.verify import samplers
from outrider.verify.filters import candidates
from outrider.verify.history import TokenHistory
from outrider.verify.logits_processors import process_logits
from outrider.verify.logprobs import token_logprob
from outrider.verify.samplers import (
    DraftToken,
    HeadOutput,
    LogitsSampler,
    RejectionSampler,
    RowResult,
    make_sampler,
    residual,
)

NO_END: frozenset[int] = frozenset()


def test_philox_known_answers() -> None:
    """The vectors published with the generator (Random123, kat_vectors)."""
    zero = [int(word) for word in philox(0, (0, 0, 0, 0))]
    assert zero == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = [int(word) for word in philox(2**64 - 1, (0xFFFFFFFF,) * 4)]
    assert ones == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_noise_depends_on_every_part_of_its_key() -> None:
    ids = np.arange(500)
    base = gumbel_noise(1, 0, 3, ids)
    for other in (
        gumbel_noise(2, 0, 3, ids),
        gumbel_noise(1 + 2**40, 0, 3, ids),
        gumbel_noise(1, 1, 3, ids),
        gumbel_noise(1, 0, 4, ids),
    ):
        assert not np.array_equal(base, other)
    assert np.array_equal(base[7:9], gumbel_noise(1, 0, 3, ids[7:9]))
    assert stats.kstest(base, "gumbel_r").pvalue > 1e-4
    uniforms = [uniform(5, 2, counter) for counter in range(2000)]
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-4


def naive_filter(logits: np.ndarray, params: SamplingParams) -> set[int]:
    """min-p, then top-k, then top-p, written the slow way."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    scaled = {i: float(np.float32(logits[i]) / np.float32(params.temperature)) for i in order}
    peak = max(scaled.values())
    if params.min_p:
        bound = float(np.float32(peak) + np.float32(math.log(params.min_p)))
        order = [i for i in order if scaled[i] >= bound]
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        weights = [math.exp(scaled[i] - peak) for i in order]
        total, reached, kept = sum(weights), 0.0, []
        for i, weight in zip(order, weights, strict=True):
            kept.append(i)
            reached += weight
            if reached / total >= params.top_p:
                break
        order = kept
    return set(order)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=60),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.integers(0, 12),
    st.sampled_from([1.0, 0.95, 0.5, 0.1]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_filters(values: list[int], temperature: float, top_k: int, top_p: float, min_p: float):
    logits = np.array(values, dtype=np.float32) / 8
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    kept = candidates(logits, params)
    assert list(kept.ids) == sorted(kept.ids)
    assert set(kept.ids.tolist()) == naive_filter(logits, params)


def test_shaping_order_and_history() -> None:
    history = TokenHistory([1, 2])
    for token in (3, 3, 4):
        history.emit(token)
    params = SamplingParams(
        repetition_penalty=2.0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        min_tokens=4,
        logit_bias={5: 1.5, 1: 2.0},
    )
    logits = np.array([1.0, -3.0, 2.0, 4.0, -1.0, 0.5, 9.0], dtype=np.float32)
    processed = process_logits(logits, params, history, frozenset({6}))
    expected = [1.0, -2.0, 1.0, 2.0 - 1.0 - 0.25, -2.0 - 0.5 - 0.25, 2.0, -np.inf]
    assert processed.tolist() == pytest.approx(expected)
    assert logits[6] == 9.0, "the target's own logits are left alone"


def test_ties_go_to_the_lowest_id() -> None:
    sampler = LogitsSampler(SamplingParams(temperature=0), 0, NO_END, gumbel_noise)
    row = RowResult(logits=np.array([1.0, 3.0, 3.0, 3.0], dtype=np.float32))
    assert sampler.sample(row, 0, TokenHistory([]), None) == 1
    kept = candidates(row.logits, SamplingParams(top_k=2))
    assert kept.ids.tolist() == [1, 2]


def test_coupled_choice_ignores_the_draft_token() -> None:
    sampler = LogitsSampler(SamplingParams(temperature=0.9), 3, NO_END, gumbel_noise)
    row = RowResult(logits=np.linspace(-1, 1, 30, dtype=np.float32))
    picks = {
        sampler.sample(row, 5, TokenHistory([]), draft)
        for draft in (None, DraftToken(2), DraftToken(9))
    }
    assert len(picks) == 1


def test_demands() -> None:
    def head_output(**changes: Any) -> HeadOutput:
        return make_sampler(
            SamplingParams(**changes), 0, NO_END, gumbel_noise, "coupled"
        ).head_output

    assert head_output(temperature=0) is HeadOutput.ARGMAX
    assert head_output(temperature=0, top_k=4) is HeadOutput.ARGMAX
    assert head_output(temperature=1) is HeadOutput.DRAW
    assert head_output(temperature=1, top_p=0.9) is HeadOutput.LOGITS
    assert head_output(temperature=0, logprobs=0) is HeadOutput.LOGITS
    assert head_output(temperature=0, min_tokens=2) is HeadOutput.LOGITS


def test_logprobs_are_finite_and_ranked() -> None:
    logits = np.array([0.0, 2.0, 2.0, -400.0], dtype=np.float32)
    entry = token_logprob(logits, 2, 3)
    assert entry.rank == 2
    assert [token for token, _ in entry.top] == [1, 2, 0]
    assert math.isclose(sum(math.exp(value) for _, value in entry.top), 1.0, rel_tol=1e-9)
    low = token_logprob(logits, 3, 0)
    assert math.isfinite(low.logprob)
    assert low.rank == 4
    assert low.top == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", 1e-6),
        ("top_p", 0),
        ("top_k", -2),
        ("min_p", 1.5),
        ("n", 0),
        ("max_tokens", 0),
        ("stop", [""]),
        ("seed", -1),
        ("logit_bias", {3: 1e9}),
        ("repetition_penalty", 0),
        ("logprobs", 99),
        ("repetition_penalty", 1e-40),
        ("ignore_eos", "no"),
        ("skip_special_tokens", None),
        ("stop", 5),
        ("stop_token_ids", 5),
        ("logit_bias", 3),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


# -- rejection -------------------------------------------------------------------------------------

VOCAB = 12
LOGITS = np.random.default_rng(0).normal(size=VOCAB).astype(np.float32) * 1.5
DRAFT = np.random.default_rng(1).dirichlet(np.ones(VOCAB))


def first_tokens(sampler: RejectionSampler, count: int, one_hot: bool) -> np.ndarray:
    """Histogram of the token that rejection sampling emits at one row."""
    draws = np.random.default_rng(2).choice(VOCAB, size=count, p=DRAFT)
    histogram = np.zeros(VOCAB)
    for drawn in draws:
        draft = DraftToken(int(drawn), None if one_hot else DRAFT)
        histogram[sampler.sample(RowResult(logits=LOGITS), 0, TokenHistory([]), draft)] += 1
    return histogram


def plain_tokens(count: int) -> np.ndarray:
    sampler = RejectionSampler(SamplingParams(), 77, NO_END, gumbel_noise)
    histogram = np.zeros(VOCAB)
    for _ in range(count):
        histogram[sampler.sample(RowResult(logits=LOGITS), 0, TokenHistory([]), None)] += 1
    return histogram


def agreement(one_hot: bool) -> float:
    """P-value of a two-sample chi-square test of speculative against plain sampling."""
    sampler = RejectionSampler(SamplingParams(), 5, NO_END, gumbel_noise)
    table = np.stack([first_tokens(sampler, 6000, one_hot), plain_tokens(6000)])
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("one_hot", [False, True])
def test_rejection_is_lossless_in_distribution(one_hot: bool) -> None:
    assert agreement(one_hot) > 1e-3


def test_the_test_catches_a_residual_that_is_not_renormalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samplers, "residual", lambda p, q: np.maximum(p - q, 0.0))

    def unscaled(self: Any, p: np.ndarray) -> int:
        u = uniform(self._seed, samplers.STREAM_TOKEN, self.draws)
        self.draws += 1
        return min(int(np.searchsorted(np.cumsum(p), u, side="right")), VOCAB - 1)

    monkeypatch.setattr(RejectionSampler, "_draw", unscaled)
    assert agreement(one_hot=False) < 1e-6


def test_the_test_catches_a_draw_from_p_after_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "residual", lambda p, q: p)
    assert agreement(one_hot=False) < 1e-6


def test_residual() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.8, 0.1])
    assert residual(p, q).tolist() == pytest.approx([0.8, 0.0, 0.2])
    assert residual(p, p).tolist() == p.tolist()


def test_a_rejected_guess_is_never_drawn_again() -> None:
    sampler = RejectionSampler(SamplingParams(), 9, NO_END, gumbel_noise)
    spike = np.zeros(VOCAB)
    spike[3] = 1.0
    low = np.where(np.arange(VOCAB) == 3, -20.0, 0.0).astype(np.float32)
    picks = {
        sampler.sample(RowResult(logits=low), 0, TokenHistory([]), DraftToken(3, spike))
        for _ in range(200)
    }
    assert 3 not in picks
    assert sampler.trials == 200
    assert sampler.draws == 200
