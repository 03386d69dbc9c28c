"""Changes to a row's logits before temperature: bias, minimum length, penalties."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.types.sampling import SamplingParams
from outrider.verify.history import TokenHistory

Logits = NDArray[np.float32]


def process_logits(
    logits: Logits, params: SamplingParams, history: TokenHistory, end_ids: frozenset[int]
) -> Logits:
    """Return the processed logits of one row, float32 [V]; the input is left alone.

    Order as in vLLM: bias, minimum length, repetition, frequency, presence.

    Args:
        logits: the target's own, float32 [V].
        params: the request's parameters.
        history: the tokens before this row's.
        end_ids: tokens that would end the output.
    """
    processed = logits.copy()
    for token, value in params.logit_bias.items():
        processed[token] += np.float32(value)
    if history.emitted < params.min_tokens:
        processed[list(end_ids)] = -np.inf
    if params.repetition_penalty != 1.0:
        seen = np.fromiter(sorted(history.prompt | history.counts.keys()), dtype=np.int64)
        factor = np.float32(params.repetition_penalty)
        values = processed[seen]
        processed[seen] = np.where(values > 0, values / factor, values * factor)
    if history.counts and (params.frequency_penalty or params.presence_penalty):
        ids = np.fromiter(history.counts.keys(), dtype=np.int64)
        counts = np.fromiter(history.counts.values(), dtype=np.float32)
        penalty = counts * np.float32(params.frequency_penalty)
        processed[ids] -= penalty + np.float32(params.presence_penalty)
    return processed
