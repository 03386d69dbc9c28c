"""From final states of a drafter to tokens of the target's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from outrider.drafters.base import DraftSampling
from outrider.kernels.philox import STREAM_DRAFT
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import zeros
from outrider.kernels.weights import RawWeight
from outrider.models.dense import DenseModel

#: Tokens that a draw chooses among: the likeliest of the drafter's distribution. A drafter may draw
#: from any distribution it reports, and noise for a whole vocabulary would cost more than it gains.
CANDIDATES: Final = 256


class DraftHead:
    """The target's head, or the rows of it that a trimmed draft vocabulary keeps.

    Draft id i means target id ``ids[i]`` (``i`` itself without a trimmed vocabulary).

    Attributes:
        kernels: the operator table that runs it.
        vocab_size: the target's vocabulary V.
        size: rows V' of the head.
        ids: target id of every draft id, int64 [V'], or None if they are the same.
        weight: the projection [V', H].
        plain: whether logits are its products as they are.
    """

    def __init__(
        self,
        target: DenseModel,
        ids: Tensor | None,
        own: RawWeight | None = None,
        multiplier: float = 1.0,
        softcap: float = 0.0,
    ) -> None:
        """Prepare the head.

        Args:
            target: the model whose head it is.
            ids: target ids that the draft vocabulary keeps, int64 [V'], or None for all.
            own: a trimmed head [V', H] that the drafter was trained with; None takes the target's
                rows.
            multiplier: positive factor of the logits.
            softcap: bound of the logits, 0 for none.
        """
        self.kernels = target.kernels
        self.vocab_size = target.config.vocab_size
        self.ids = ids
        self.size = self.vocab_size if ids is None else len(ids)
        if own is not None:
            self.weight = self.kernels.prepare([own])
        else:
            self.weight = target.head if ids is None else target.trimmed_head(ids)
        self._multiplier = multiplier
        self._softcap = softcap
        self.plain = multiplier == 1.0 and softcap == 0.0

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the draft vocabulary, float32 [n, H] to [n, V']."""
        logits = self.kernels.linear(hidden, self.weight)
        if self._multiplier != 1.0:
            logits = logits * self._multiplier
        if self._softcap > 0:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def argmax(self, hidden: Tensor) -> list[int]:
        """Likeliest target ids of states [n, H]; the factor and the bound keep the order."""
        return self.target_ids(self.kernels.argmax(hidden, self.weight)).tolist()

    def target_ids(self, ids: Tensor) -> Tensor:
        """Target ids of draft ids, int64."""
        return ids if self.ids is None else self.ids[ids]


def argmax_lowest(scores: Tensor) -> Tensor:
    """Index of the largest value along the last dimension, the lowest one on ties, int64."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.argmax(scores.numpy(), axis=-1))
    places = torch.arange(scores.shape[-1], dtype=torch.int64, device=scores.device)
    largest = scores == scores.amax(-1, keepdim=True)
    return torch.where(largest, places, scores.shape[-1]).amin(-1)


def draw(
    kernels: Kernels, scores: Tensor, ids: Tensor, sampling: DraftSampling, position: int
) -> tuple[int, Tensor]:
    """Draw one token by the Gumbel-max rule with the session's noise.

    The noise is keyed by target ids and by the absolute position of the drafted token. On the
    target's stream the target will judge that position with the very same noise, so the two agree
    more often than independent draws would.

    Args:
        kernels: source of the noise.
        scores: unnormalised log probabilities at temperature 1, float32 [m].
        ids: their target ids, int64 [m].
        sampling: temperature, above 0, and noise.
        position: absolute position of the token.

    Returns:
        The index drawn, and the distribution it was drawn from, float32 [m].
    """
    scaled = (scores - scores.max()) / sampling.temperature
    noise = kernels.gumbel(sampling.seed, sampling.stream, position, ids)
    return int((scaled + noise.to(scaled.device)).argmax()), scaled.softmax(-1)


def draw_token(
    head: DraftHead, logits: Tensor, sampling: DraftSampling, position: int
) -> tuple[int, Tensor | None]:
    """Draw a target id from the likeliest candidates of logits [V'] over the draft vocabulary.

    Returns:
        The target id, and its distribution over the target's vocabulary, float32 [V], if the
        sampling is on the drafter's own stream, where rejection sampling needs it.
    """
    scores, places = logits.topk(min(CANDIDATES, logits.shape[-1]))
    ids = head.target_ids(places)
    index, probabilities = draw(head.kernels, scores, ids, sampling, position)
    return int(ids[index]), over_vocabulary(probabilities, ids, head.vocab_size, sampling)


def over_vocabulary(
    probabilities: Tensor, ids: Tensor, vocab_size: int, sampling: DraftSampling
) -> Tensor | None:
    """Place candidate probabilities [m] at their target ids in [V]; None off the draft stream."""
    if sampling.stream != STREAM_DRAFT:
        return None
    dense = zeros(vocab_size, device=ids.device)
    return dense.index_put_((ids,), probabilities)


def stack_distributions(distributions: Sequence[Tensor | None]) -> Tensor | None:
    """Stack the distributions of a session's drafts, [n, V]; None if they were not recorded."""
    rows = [distribution for distribution in distributions if distribution is not None]
    return torch.stack(rows) if rows else None
