"""How far a drafter's confidences hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Promised tokens that an estimate starts with, all of them kept: how long a drafter is believed
#: before it is known. Set by hand; no measurement is recorded.
PRIOR_TOKENS: Final = 8.0
#: Promised tokens that it remembers: a drafter's bias changes more slowly than a text. Set by hand.
MEMORY_TOKENS: Final = 400.0


class Calibration:
    """What the target kept over what a drafter's confidences promised.

    Confidence heads are trained on one kind of text and meet another: at the first position they
    promised 0.80 where the target kept 0.69, and 0.77 where it kept 0.57 at temperature 0.8
    (dev/LOG.md, "Does drafting pay on two cores?"). A single ratio brings their sums back to what
    the target accepts.
    """

    def __init__(self) -> None:
        """Believe the drafter at first."""
        self._promised = self._kept = PRIOR_TOKENS

    def record(self, confidences: Sequence[float], accepted: int) -> None:
        """Count one round's judged tokens up to the first that was refused."""
        for index, confidence in enumerate(confidences[: accepted + 1]):
            fade = min(1.0, MEMORY_TOKENS / (self._promised + 1.0))
            self._promised = self._promised * fade + confidence
            self._kept = self._kept * fade + float(index < accepted)

    def chances(self, confidences: Sequence[float]) -> list[float]:
        """Estimated chance that each token is reached and accepted."""
        ratio = self._kept / self._promised
        chances, chance = [], 1.0
        for confidence in confidences:
            chance *= min(confidence * ratio, 1.0)
            chances.append(chance)
        return chances
