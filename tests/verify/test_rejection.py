"""Rejection sampling in absolute terms: which noise decides what, and that the two are apart."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from outrider.kernels.philox import STREAM_ACCEPT, STREAM_DRAFT, STREAM_TOKEN, uniform
from outrider.types.sampling import SamplingParams
from outrider.verify import samplers
from outrider.verify.history import TokenHistory
from outrider.verify.samplers import DraftToken, RejectionSampler, RowResult

SEED = 11
#: Exact in float32 and float64: a half, a quarter, two eighths.
P = [0.5, 0.25, 0.125, 0.125]
ROW = RowResult(logits=np.log(np.float32(P)))


def unused_gumbel(*_: object) -> np.ndarray:
    raise AssertionError("rejection draws without Gumbel noise")


def make(seed: int = SEED) -> RejectionSampler:
    return RejectionSampler(SamplingParams(), seed, frozenset(), unused_gumbel)


def sample(sampler: RejectionSampler, draft: DraftToken | None) -> int:
    return sampler.sample(ROW, 0, TokenHistory([]), draft)


def drawn(weights: list[float], u: float) -> int:
    """The first token whose cumulative share is above ``u``."""
    shares = np.cumsum(weights) / sum(weights)
    return int(np.flatnonzero(shares > u)[0])


def test_streams_of_noise_differ() -> None:
    assert len({STREAM_TOKEN, STREAM_DRAFT, STREAM_ACCEPT}) == 3
    for counter in range(50):
        drawn_by = {uniform(SEED, stream, counter) for stream in range(3)}
        assert len(drawn_by) == 3


def test_a_token_without_a_draft_is_drawn_with_the_noise_of_tokens() -> None:
    sampler = make()
    for count in range(200):
        assert sampler.draws == count
        assert sample(sampler, None) == drawn(P, uniform(SEED, STREAM_TOKEN, count))
    assert sampler.trials == 0


@pytest.mark.parametrize("token", range(4))
def test_a_certain_draft_is_accepted_with_the_noise_of_tests(token: int) -> None:
    """With q all on the draft it is accepted where u < p, and drawn from the others elsewhere."""
    sampler = make()
    others = [0.0 if other == token else p for other, p in enumerate(P)]
    draws = 0
    for trial in range(200):
        got = sample(sampler, DraftToken(token))
        if uniform(SEED, STREAM_ACCEPT, trial) < P[token]:
            assert got == token
        else:
            assert got == drawn(others, uniform(SEED, STREAM_TOKEN, draws))
            draws += 1
        assert (sampler.trials, sampler.draws) == (trial + 1, draws)
    assert 0 < draws < 200


def test_a_draft_is_accepted_where_u_times_q_is_below_p() -> None:
    """q gives token 0 a quarter, less than p: always accepted; token 3 five eighths: a fifth."""
    q = np.array([0.25, 0.125, 0.0, 0.625])
    left = np.maximum(np.array(P) - q, 0.0).tolist()
    sampler = make()
    draws = 0
    for trial in range(300):
        token = 3 * (trial % 2)
        got = sample(sampler, DraftToken(token, q))
        if token == 0 or uniform(SEED, STREAM_ACCEPT, trial) * 0.625 < 0.125:
            assert got == token
        else:
            assert got == drawn(left, uniform(SEED, STREAM_TOKEN, draws))
            draws += 1
    assert 0 < draws < 150


def test_a_draft_distribution_counts_by_its_shares() -> None:
    q = np.array([0.25, 0.125, 0.0, 0.625])
    one, other = make(), make()
    for _ in range(100):
        assert sample(one, DraftToken(3, q)) == sample(other, DraftToken(3, 8 * q))


def test_going_back_draws_the_same_again() -> None:
    sampler = make()
    sample(sampler, None)
    sample(sampler, DraftToken(2))
    mark = sampler.mark()
    first = [sample(sampler, DraftToken(token % 4)) for token in range(20)]
    assert sampler.mark() != mark
    sampler.roll_back(mark)
    assert [sample(sampler, DraftToken(token % 4)) for token in range(20)] == first


def first_tokens_fit(count: int = 1500) -> float:
    """P-value of the first token of many sessions against p, the draft drawn from q."""
    q = np.array([0.25, 0.125, 0.25, 0.375])
    drafts = np.random.default_rng(3).choice(4, size=count, p=q)
    seen = np.zeros(4)
    for seed, draft in enumerate(drafts):
        seen[sample(make(seed), DraftToken(int(draft), q))] += 1
    return float(stats.chisquare(seen, np.array(P) * count).pvalue)


def test_the_first_token_of_a_session_has_the_targets_distribution() -> None:
    """Both counters stand at 0 there: noise shared between test and draw would show."""
    assert first_tokens_fit() > 1e-3


def test_the_test_catches_noise_that_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "STREAM_ACCEPT", STREAM_TOKEN)
    assert first_tokens_fit() < 1e-6
