"""Log-probabilities reported to the user: the target's own, before any change."""

from __future__ import annotations

import numpy as np

from outrider.types.output import TokenLogprob
from outrider.verify.logits_processors import Logits


def token_logprob(logits: Logits, token: int, count: int) -> TokenLogprob:
    """Report ``token`` and the ``count`` most likely tokens of one row, ties to the lowest id."""
    values = logits.astype(np.float64)
    peak = values.max()
    norm = peak + np.log(np.exp(values - peak).sum())
    rank = 1 + int((values > values[token]).sum()) + int((values[:token] == values[token]).sum())
    top: tuple[tuple[int, float], ...] = ()
    if count:
        least = np.partition(values, len(values) - count)[len(values) - count]
        ids = np.flatnonzero(values >= least)
        best = ids[np.argsort(-values[ids], kind="stable")][:count]
        top = tuple((int(best_id), float(values[best_id] - norm)) for best_id in best)
    return TokenLogprob(token, float(values[token] - norm), rank, top)
