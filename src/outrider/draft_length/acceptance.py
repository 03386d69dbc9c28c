"""How often drafted tokens are accepted, by their position in the draft."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

#: Acceptance by position, given that the position before was accepted, before any was seen. A
#: guess: too high costs a few drafts at first, too low keeps a drafter from being tried. Drafts of
#: ``auto`` met with 0.69 at the first position (dev/LOG.md, "Does drafting pay on two cores?").
EXPECTED: Final = (0.6, 0.6, 0.55, 0.5)
#: Rounds that an estimate's prior counts for. More keeps a new session longer at what others met
#: with, fewer lets its first rounds decide. Set by hand; no measurement is recorded.
PRIOR_ROUNDS: Final = 4.0
#: How well a position that was hardly tried is expected to do, against the one before it: with the
#: prior alone, a drafter that is right would stay at short drafts. Set by hand.
NEXT_POSITION: Final = 0.9
#: Rounds that an estimate remembers; older ones fade, since texts change. Fewer would follow a
#: change sooner and chance too: over 40 rounds a share of a half is known to 0.08. Set by hand.
MEMORY_ROUNDS: Final = 40.0


class AcceptanceStatistics:
    """Running estimate of acceptance by position, given that the position before was accepted."""

    def __init__(self, prior: Sequence[float]) -> None:
        """Start from ``prior``; positions past its end take its last value."""
        self._prior = list(prior)
        self._tried: list[float] = []
        self._kept: list[float] = []

    def record(self, judged: int, accepted: int) -> None:
        """Count one round: positions below ``accepted`` held; the next, if judged, did not."""
        reached = min(accepted + 1, judged)
        self._tried.extend([0.0] * (reached - len(self._tried)))
        self._kept.extend([0.0] * (reached - len(self._kept)))
        for position in range(reached):
            fade = min(1.0, MEMORY_ROUNDS / (self._tried[position] + 1.0))
            self._tried[position] = self._tried[position] * fade + 1.0
            self._kept[position] = self._kept[position] * fade + float(position < accepted)

    def conditionals(self, length: int) -> list[float]:
        """Estimated chance of each of ``length`` positions once the one before it is accepted.

        A position that was hardly tried is believed to do nearly as well as the one before it.
        """
        chances: list[float] = []
        for position in range(length):
            prior = self._prior[min(position, len(self._prior) - 1)]
            if 0 < position <= len(self._tried):
                prior = max(prior, NEXT_POSITION * chances[-1])
            tried = self._tried[position] if position < len(self._tried) else 0.0
            kept = self._kept[position] if position < len(self._kept) else 0.0
            chances.append((kept + PRIOR_ROUNDS * prior) / (tried + PRIOR_ROUNDS))
        return chances

    def chances(self, length: int) -> list[float]:
        """Estimated chance that each of ``length`` positions is reached and accepted."""
        return list(accumulate(self.conditionals(length), mul))
