"""Temperature and the filters that bound what may be drawn: min-p, top-k, top-p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.types.sampling import SamplingParams
from outrider.verify.logits_processors import Logits

#: Candidates sorted first when only top-p bounds them; more are sorted if these lack the mass.
_FIRST_SORTED = 1024


@dataclass(frozen=True)
class Candidates:
    """The tokens that may be drawn at one row.

    Attributes:
        ids: their ids, ascending, int64 [m].
        scaled: their logits over the temperature, float32 [m].
    """

    ids: NDArray[np.int64]
    scaled: NDArray[np.float32]

    def probabilities(self, vocab_size: int) -> NDArray[np.float64]:
        """Their softmax, spread over the vocabulary, float64 [V]."""
        dense = np.zeros(vocab_size, dtype=np.float64)
        weights = np.exp(self.scaled.astype(np.float64) - float(self.scaled.max()))
        dense[self.ids] = weights / weights.sum()
        return dense


def candidates(logits: Logits, params: SamplingParams) -> Candidates:
    """Scale one row's logits and keep what min-p, then top-k, then top-p allow.

    Equal logits are ordered by id, lowest first. top-p sees the distribution that the other two
    have left, renormalised; the token that reaches the mass is kept.
    """
    scaled = logits / np.float32(params.temperature)
    ids = np.arange(len(scaled), dtype=np.int64)
    if params.min_p > 0.0:
        ids = ids[scaled >= scaled.max() + np.float32(np.log(params.min_p))]
    if 0 < params.top_k < len(ids):
        ids = np.sort(_top(ids, scaled, params.top_k))
    if params.top_p < 1.0:
        ids = np.sort(_nucleus(ids, scaled, params.top_p))
    finite = ids[scaled[ids] > -np.inf]
    return Candidates(finite, scaled[finite])


def _top(ids: NDArray[np.int64], scaled: Logits, count: int) -> NDArray[np.int64]:
    """The ``count`` best of ascending ``ids``, best first, ties to the lowest id."""
    values = scaled[ids]
    if count < len(ids):
        least = np.partition(values, len(ids) - count)[len(ids) - count]
        ids = ids[values >= least]
    order = np.argsort(-scaled[ids], kind="stable")
    return ids[order][:count]


def _nucleus(ids: NDArray[np.int64], scaled: Logits, mass: float) -> NDArray[np.int64]:
    """The shortest run of best tokens whose probability reaches ``mass``."""
    values = scaled[ids].astype(np.float64)
    peak = float(values.max())
    total = float(np.exp(values - peak).sum())
    for count in (_FIRST_SORTED, len(ids)):
        best = _top(ids, scaled, count)
        reached = np.cumsum(np.exp(scaled[best].astype(np.float64) - peak)) / total
        enough = np.flatnonzero(reached >= mass)
        if len(enough):
            return best[: int(enough[0]) + 1]
    return best
