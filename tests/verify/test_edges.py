"""The exact edges of what may be drawn: ties, bounds that are met, the order of changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from outrider.kernels.philox import gumbel_noise
from outrider.types.sampling import SamplingParams
from outrider.verify.filters import candidates
from outrider.verify.history import TokenHistory
from outrider.verify.logits_processors import process_logits
from outrider.verify.logprobs import token_logprob
from outrider.verify.samplers import LogitsSampler, RowResult

NO_END: frozenset[int] = frozenset()


def kept(logits: Any, **options: Any) -> list[int]:
    """Ids of the tokens that may be drawn."""
    found = candidates(np.asarray(logits, dtype=np.float32), SamplingParams(**options))
    return [int(token) for token in found.ids]


# -- top-p -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 64, 1024, 4096])
@pytest.mark.parametrize(("numerator", "denominator"), [(1, 4), (1, 2), (3, 4)])
def test_the_token_that_reaches_the_mass_exactly_is_the_last(
    count: int, numerator: int, denominator: int
) -> None:
    """Powers of two are exact: equal tokens reach a quarter, a half, three quarters."""
    found = kept(np.zeros(count), top_p=numerator / denominator)
    assert found == list(range(count * numerator // denominator))


def test_the_mass_is_reached_by_the_token_that_goes_past_it() -> None:
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    assert kept(logits, top_p=0.49) == [0]
    assert kept(logits, top_p=0.51) == [0, 1]
    assert kept(logits, top_p=0.74) == [0, 1]
    assert kept(logits, top_p=0.76) == [0, 1, 2]
    assert kept(logits, top_p=1e-9) == [0]
    assert kept(logits, top_p=0.9999) == [0, 1, 2, 3]


def test_equal_tokens_at_the_edge_of_top_p_go_by_id() -> None:
    assert kept(np.log([0.125, 0.125, 0.5, 0.25]), top_p=0.76) == [0, 2, 3]
    assert kept(np.log([0.25, 0.25, 0.25, 0.25]), top_p=0.3) == [0, 1]


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2047, 2048, 3000])
def test_top_p_keeps_as_many_as_it_takes(count: int) -> None:
    """Also past the number of tokens that are sorted first."""
    found = kept(np.zeros(4096), top_p=(count - 0.5) / 4096)
    assert found == list(range(count))


def test_top_p_is_of_what_the_other_filters_left() -> None:
    """Of [8, 4, 2, 2] sixteenths two remain: two thirds and one third."""
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    assert kept(logits, top_k=2, top_p=0.66) == [0]
    assert kept(logits, top_k=2, top_p=0.67) == [0, 1]
    assert kept(logits, min_p=0.4, top_p=0.66) == [0]
    assert kept(logits, top_p=0.66) == [0, 1]


def test_a_top_p_of_one_keeps_what_hardly_adds_to_the_mass() -> None:
    assert kept([0.0, -50.0, -60.0], top_p=1.0) == [0, 1, 2]
    assert kept([0.0, -50.0, -60.0], top_p=0.999999) == [0]


def test_large_logits_do_not_overflow() -> None:
    logits = np.float32([9000.0, 8999.0, 0.0])
    params = SamplingParams(top_p=0.99)
    found = candidates(logits, params)
    share = 1 / (1 + math.exp(-1))
    assert found.probabilities(3).tolist() == pytest.approx([share, 1 - share, 0])
    assert kept([-9000.0, -9001.0, -9009.0], top_p=0.99) == [0, 1]
    assert token_logprob(logits, 1, 0).logprob == pytest.approx(math.log(1 - share))


def test_filters_see_the_logits_over_the_temperature() -> None:
    logits = 2 * np.log([0.5, 0.25, 0.125, 0.125])
    assert kept(logits, temperature=2.0, top_p=0.74) == [0, 1]
    assert kept(logits, temperature=2.0, min_p=0.4) == [0, 1]
    assert kept(logits, temperature=1.0, min_p=0.4) == [0]
    found = candidates(np.float32([1.0, 3.0]), SamplingParams(temperature=0.5))
    assert found.scaled.tolist() == [2.0, 6.0]


# -- min-p, top-k ----------------------------------------------------------------------------------


@pytest.mark.parametrize("min_p", [0.5, 0.25, 0.1, 0.05])
def test_a_token_at_the_bound_of_min_p_is_kept(min_p: float) -> None:
    bound = np.float32(math.log(min_p))
    below = np.nextafter(bound, np.float32(-9))
    above = np.nextafter(bound, np.float32(9))
    assert kept([bound, 0.0, below, above], min_p=min_p) == [0, 1, 3]


def test_min_p_of_one_keeps_the_best_and_its_equals() -> None:
    assert kept([1.0, 2.0, 2.0, 1.9], min_p=1.0) == [1, 2]


@pytest.mark.parametrize(
    ("top_k", "wanted"), [(1, [2]), (2, [0, 2]), (3, [0, 2, 3]), (4, [0, 2, 3, 4])]
)
def test_equal_tokens_at_the_edge_of_top_k_go_by_id(top_k: int, wanted: list[int]) -> None:
    assert kept([1.0, 0.0, 2.0, 1.0, 1.0], top_k=top_k) == wanted


@pytest.mark.parametrize("top_k", [-1, 0, 3, 4])
def test_top_k_of_all_or_none_keeps_all(top_k: int) -> None:
    assert kept([1.0, 0.0, 2.0], top_k=top_k) == [0, 1, 2]


def test_top_k_takes_what_min_p_left() -> None:
    assert kept([0.0, -1.0, -9.0, -2.0], min_p=0.2, top_k=3) == [0, 1]
    assert kept([0.0, -1.0, -9.0, -1.0], min_p=0.2, top_k=2) == [0, 1]


def test_what_was_ruled_out_is_never_kept() -> None:
    assert kept([1.0, -np.inf, 0.0]) == [0, 2]
    assert kept([-np.inf, 1.0, -np.inf], top_k=2) == [1]


def test_probabilities_lie_at_their_ids() -> None:
    found = candidates(np.log(np.float32([0.125, 0.5, 0.25, 0.125])), SamplingParams(top_k=2))
    assert found.probabilities(4).tolist() == pytest.approx([0, 2 / 3, 1 / 3, 0])


# -- before the choice -----------------------------------------------------------------------------


def changed(
    logits: list[float], history: TokenHistory | None = None, **options: Any
) -> list[float]:
    params = SamplingParams(**options)
    before = np.asarray(logits, dtype=np.float32)
    after = process_logits(before, params, history or TokenHistory([]), frozenset({0}))
    assert before.tolist() == logits, "the target's own logits are left alone"
    return [float(value) for value in after]


def emitted(*tokens: int, prompt: tuple[int, ...] = ()) -> TokenHistory:
    history = TokenHistory(prompt)
    for token in tokens:
        history.emit(token)
    return history


@pytest.mark.parametrize(("count", "open_"), [(0, False), (1, False), (2, True), (3, True)])
def test_end_tokens_are_ruled_out_until_min_tokens_are_there(count: int, open_: bool) -> None:
    after = changed([1.0, 2.0], emitted(*[1] * count), min_tokens=2)
    assert after == [1.0 if open_ else -math.inf, 2.0]


def test_no_bias_lets_an_end_token_through_too_early() -> None:
    assert changed([1.0, 2.0], min_tokens=1, logit_bias={0: 100.0})[0] == -math.inf


def test_the_repetition_penalty_counts_prompt_and_output_once() -> None:
    history = emitted(2, 3, 3, prompt=(1, 2, 5))
    logits = [4.0, 4.0, 4.0, 4.0, 4.0, -4.0, 0.0]
    assert changed(logits, history, repetition_penalty=2.0) == [4, 2, 2, 2, 4, -8, 0]
    assert changed(logits, emitted(prompt=(1,)), repetition_penalty=2.0)[1] == 2
    assert changed(logits, emitted(1), repetition_penalty=0.5)[1] == 8
    small = [0.5, -0.5, 0.0]
    assert changed(small, emitted(0, 1, 2), repetition_penalty=2.0) == [0.25, -1, 0]


def test_the_other_penalties_count_the_output_alone() -> None:
    history = emitted(2, 3, 3, prompt=(1, 2))
    logits = [4.0] * 5
    assert changed(logits, history, frequency_penalty=0.5) == [4, 4, 3.5, 3, 4]
    assert changed(logits, history, presence_penalty=0.5) == [4, 4, 3.5, 3.5, 4]
    assert changed(logits, history, presence_penalty=-1, frequency_penalty=1) == [4, 4, 4, 3, 4]


def test_bias_comes_before_penalties() -> None:
    """vLLM's order: a biased logit is what the repetition penalty divides or multiplies."""
    history = emitted(1)
    both = {"logit_bias": {1: 3.0}, "repetition_penalty": 2.0}
    assert changed([0.0, 1.0], history, **both)[1] == 2
    assert changed([0.0, -4.0], history, **both)[1] == -2
    assert changed([0.0, -2.0], history, **both)[1] == 0.5


def test_the_repetition_penalty_comes_before_the_others() -> None:
    penalties = {"repetition_penalty": 2.0, "frequency_penalty": 1.0, "presence_penalty": 0.5}
    assert changed([0.0, 4.0], emitted(1), **penalties)[1] == 0.5


def test_bias_is_added_to_its_token() -> None:
    assert changed([1.0, 2.0, 3.0], logit_bias={2: -1.5, 1: 4.0}) == [1, 6, 1.5]


# -- the choice ------------------------------------------------------------------------------------


def test_a_coupled_choice_is_the_best_of_logits_and_noise_under_its_key() -> None:
    logits = np.float32([0.3, -0.2, 0.9, 0.1])
    for seed in (3, 4):
        for position in range(20):
            noise = gumbel_noise(seed, 0, position, np.arange(4))
            sampler = LogitsSampler(SamplingParams(top_k=3), seed, NO_END, gumbel_noise)
            wanted = max((0, 2, 3), key=lambda token: float(logits[token] + noise[token]))
            row = RowResult(logits=logits)
            assert sampler.sample(row, position, TokenHistory([]), None) == wanted


@pytest.mark.parametrize(("token", "rank"), [(3, 1), (1, 2), (2, 3), (4, 4), (0, 5), (5, 6)])
def test_ranks_on_ties_go_by_id(token: int, rank: int) -> None:
    logits = np.float32([0.0, 2.0, 2.0, 3.0, 2.0, -1.0])
    assert token_logprob(logits, token, 0).rank == rank


@pytest.mark.parametrize("count", range(1, 7))
def test_the_most_likely_tokens_go_by_logit_and_then_by_id(count: int) -> None:
    logits = np.float32([0.0, 2.0, 2.0, 3.0, 2.0, -1.0])
    entry = token_logprob(logits, 5, count)
    assert [token for token, _ in entry.top] == [3, 1, 2, 4, 0, 5][:count]
    total = math.log(sum(math.exp(value) for value in logits))
    for token, value in entry.top:
        assert value == pytest.approx(float(logits[token]) - total)
    assert entry.logprob == pytest.approx(-1.0 - total)
    assert entry.token_id == 5
