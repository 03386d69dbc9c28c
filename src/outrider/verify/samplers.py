"""Samplers: one request's rule for the token at one row.

A verdict walks a session's rows in order, lets the sampler pick the target's token at each, and
goes on while the pick equals the drafted token. Greedy and coupled samplers do not look at the
draft, so the tokens are those of plain decoding, whatever was drafted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.philox import STREAM_ACCEPT, STREAM_TOKEN, uniform
from outrider.types.errors import InvariantError
from outrider.types.sampling import SamplingParams
from outrider.verify.filters import candidates
from outrider.verify.history import TokenHistory
from outrider.verify.logits_processors import Logits, process_logits

#: Gumbel noise of tokens under (seed, stream, position): the table's ``gumbel`` over numpy arrays.
Gumbel = Callable[[int, int, int, NDArray[np.int64]], NDArray[np.float32]]


class HeadOutput(Enum):
    """What a sampler needs of the head: the cheapest operator that decides its rows."""

    ARGMAX = "argmax"
    DRAW = "draw"
    LOGITS = "logits"


@dataclass(frozen=True)
class RowResult:
    """What the head computed for one row; which field is set follows the sampler's head output."""

    choice: int | None = None
    logits: Logits | None = None

    @property
    def finite(self) -> bool:
        """Whether every logit was a finite number; the operators say -1 where one was not."""
        if self.logits is not None:
            return bool(np.isfinite(self.logits).all())
        return self.choice is not None and self.choice >= 0


@dataclass(frozen=True)
class DraftToken:
    """The drafted token of one row.

    Attributes:
        token: its id.
        probabilities: the distribution it was drawn from, [V], or None if it was certain.
    """

    token: int
    probabilities: NDArray[Any] | None = None


class Sampler(ABC):
    """Picks the target's token at each row of one session."""

    head_output: HeadOutput

    @abstractmethod
    def sample(
        self, row: RowResult, position: int, history: TokenHistory, draft: DraftToken | None
    ) -> int:
        """Pick the token at absolute ``position``.

        Args:
            row: what the head computed.
            position: index of the token in the session's stream.
            history: the tokens before it.
            draft: the drafted token, or None after the last one.
        """

    def mark(self) -> tuple[int, ...]:
        """What it counts, to go back to; nothing by default."""
        return ()

    def roll_back(self, mark: tuple[int, ...]) -> None:  # noqa: B027 - most count nothing
        """Count on from ``mark``, which ``mark`` returned."""


class DirectSampler(Sampler):
    """Takes the operator's own choice: a bare argmax, or a draw with nothing filtered."""

    def __init__(self, head_output: HeadOutput) -> None:
        self.head_output = head_output

    def sample(
        self, row: RowResult, position: int, history: TokenHistory, draft: DraftToken | None
    ) -> int:
        """Return the operator's choice."""
        if row.choice is None:
            raise InvariantError(f"the head was not asked for {self.head_output.value}")
        return row.choice


class LogitsSampler(Sampler):
    """Greedy or coupled choice from processed, filtered logits."""

    head_output = HeadOutput.LOGITS

    def __init__(
        self, params: SamplingParams, seed: int, end_ids: frozenset[int], gumbel: Gumbel
    ) -> None:
        self._params = params
        self._seed = seed
        self._end_ids = end_ids
        self._gumbel = gumbel

    def processed(self, row: RowResult, history: TokenHistory) -> Logits:
        """The row's logits after bias, minimum length and penalties."""
        if row.logits is None:
            raise InvariantError("the head was not asked for logits")
        if not self._params.processes_logits:
            return row.logits
        return process_logits(row.logits, self._params, history, self._end_ids)

    def sample(
        self, row: RowResult, position: int, history: TokenHistory, draft: DraftToken | None
    ) -> int:
        """Greedy: the argmax. Coupled: Gumbel-max with noise keyed by (seed, position, id)."""
        logits = self.processed(row, history)
        if self._params.greedy:
            return int(np.argmax(logits))
        kept = candidates(logits, self._params)
        noise = self._gumbel(self._seed, STREAM_TOKEN, position, kept.ids)
        return int(kept.ids[np.argmax(kept.scaled + noise)])


class RejectionSampler(LogitsSampler):
    """Speculative sampling (arXiv 2211.17192): lossless in distribution.

    A drafted token is accepted if u q < p. Otherwise the pick comes from max(p - q, 0),
    renormalised, in which the drafted token has no mass, so a pick equals the draft exactly when
    the draft was accepted. Both counters live as long as the session and never repeat.

    Attributes:
        draws: tokens drawn so far.
        trials: acceptance tests so far.
    """

    def __init__(
        self, params: SamplingParams, seed: int, end_ids: frozenset[int], gumbel: Gumbel
    ) -> None:
        super().__init__(params, seed, end_ids, gumbel)
        self.draws = 0
        self.trials = 0

    def sample(
        self, row: RowResult, position: int, history: TokenHistory, draft: DraftToken | None
    ) -> int:
        """Accept the draft, or draw from what is left of p."""
        logits = self.processed(row, history)
        p = candidates(logits, self._params).probabilities(len(logits))
        if draft is None:
            return self._draw(p)
        q = _dense(draft, len(p))
        u = uniform(self._seed, STREAM_ACCEPT, self.trials)
        self.trials += 1
        if u * q[draft.token] < p[draft.token]:
            return draft.token
        return self._draw(residual(p, q))

    def mark(self) -> tuple[int, ...]:
        """The counters of its two noise streams."""
        return self.draws, self.trials

    def roll_back(self, mark: tuple[int, ...]) -> None:
        """Count on from ``mark``: what was drawn since then is drawn again."""
        self.draws, self.trials = mark

    def _draw(self, p: NDArray[np.float64]) -> int:
        """Inverse-CDF draw from p."""
        u = uniform(self._seed, STREAM_TOKEN, self.draws)
        self.draws += 1
        support = np.flatnonzero(p)
        cumulative = np.cumsum(p[support])
        found = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
        return int(support[min(found, len(support) - 1)])


def _dense(draft: DraftToken, vocab_size: int) -> NDArray[np.float64]:
    """The draft's distribution in float64, renormalised, [V]."""
    if draft.probabilities is None:
        q = np.zeros(vocab_size, dtype=np.float64)
        q[draft.token] = 1.0
        return q
    dense: NDArray[np.float64] = np.asarray(draft.probabilities, dtype=np.float64)
    return dense / float(dense.sum())


def residual(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """max(p - q, 0), renormalised; p itself if rounding left nothing (arXiv 2211.17192)."""
    rest = np.maximum(p - q, 0.0)
    mass = rest.sum()
    return rest / mass if mass > 0.0 else p


def make_sampler(
    params: SamplingParams,
    seed: int,
    end_ids: frozenset[int],
    gumbel: Gumbel,
    verification: str,
) -> Sampler:
    """Choose the cheapest rule that applies the request's parameters exactly."""
    if not params.greedy and verification == "rejection":
        return RejectionSampler(params, seed, end_ids, gumbel)
    unfiltered = params.top_p == 1.0 and params.top_k <= 0 and params.min_p == 0.0
    needs_logits = params.processes_logits or params.logprobs is not None
    if needs_logits or not (params.greedy or unfiltered):
        return LogitsSampler(params, seed, end_ids, gumbel)
    return DirectSampler(HeadOutput.ARGMAX if params.greedy else HeadOutput.DRAW)
