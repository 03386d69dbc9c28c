"""Tokens per second of a round, by how many tokens it drafts.

Goodput as in SmartSpec (Liu et al., "Optimizing Speculative Decoding for Serving Large Language
Models Using Goodput", 2024): tokens that are expected to be emitted over the seconds of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.draft_length.acceptance import EXPECTED
from outrider.draft_length.cost_curve import CostCurve
from outrider.draft_length.shared_statistics import SharedStatistics

#: Share of a draft's error by which its price moves, as for the rows of a pass beside a knot.
DRAFT_RATE: Final = 0.08
#: A draft counts as at most this many times dearer than estimated, as for passes.
MOST_SURPRISE: Final = 2.0
#: A draft that took less than this share of the usual price was a copy, which runs no network. Too
#: high a share would keep a drafter that became faster from being priced anew. Set by hand.
COPY_SHARE: Final = 0.25
#: Goodput over that of plain decoding below which a full draft is not asked for: estimates are off
#: by a few hundredths, and a draft's time is lost for certain. Set by hand.
LEAST_GAIN: Final = 1.02
#: The same for tokens that are drafted already, whose time is spent: a little of the speed is
#: risked, because only tokens that are judged teach anything. Set by hand.
LEAST_RETURN: Final = 0.98


class Goodput:
    """The engine-wide prices, of a pass by its rows and of drafting, and what follows from them.

    Attributes:
        curve: seconds of a target pass by rows.
        sessions: how many shared the last pass; a pass's fixed cost is split among them.
    """

    def __init__(
        self, curve: CostCurve, draft_seconds: float, expected: Sequence[float] = EXPECTED
    ) -> None:
        """Start from a profile of passes.

        Args:
            curve: seconds of a pass by rows.
            draft_seconds: seconds of one full draft.
            expected: acceptance by position before any was seen.
        """
        self.curve = curve
        self._greedy, self._sampled = SharedStatistics(expected), SharedStatistics(expected)
        self.sessions = 1
        self._draft_seconds = draft_seconds

    @property
    def draft_seconds(self) -> float:
        """Estimated seconds of one full draft."""
        return self._draft_seconds

    def statistics(self, temperature: float) -> SharedStatistics:
        """What sessions that draw like this have met with: drawn tokens are harder to guess."""
        return self._sampled if temperature > 0 else self._greedy

    def observe(
        self, rows: int, sessions: int, draft_seconds: float | None, seconds: float
    ) -> None:
        """Note one round of decoding.

        Args:
            rows: rows of its pass, drafted ones included.
            sessions: how many shared it.
            draft_seconds: what asking the drafter took; None if nothing was drafted.
            seconds: what the pass took, the verdict included.
        """
        self.curve.observe(rows, seconds)
        self.sessions = sessions
        # Copies go out with full drafts and cost nothing beside them; they are no price.
        if draft_seconds is not None and draft_seconds > self._draft_seconds * COPY_SHARE:
            bounded = min(draft_seconds, MOST_SURPRISE * self._draft_seconds)
            self._draft_seconds += DRAFT_RATE * (bounded - self._draft_seconds)

    def length(self, chances: Sequence[float]) -> int:
        """Length with the most tokens per second, 0 if none beats plain decoding.

        Args:
            chances: estimated chance that each drafted position is accepted, in order.
        """
        return self._best(chances, LEAST_GAIN, self._draft_seconds)

    def cut(self, chances: Sequence[float]) -> int:
        """As ``length``, for tokens that are already drafted: their cost is sunk."""
        return self._best(chances, LEAST_RETURN, 0.0)

    def _best(self, chances: Sequence[float], least: float, extra: float) -> int:
        """Length with the most tokens per second, 0 if none beats ``least`` times plain speed."""
        sessions, seconds = self.sessions, self.curve.seconds
        best, best_rate, tokens = 0, sessions / seconds(sessions) * least, 1.0
        for position, chance in enumerate(chances):
            tokens += chance
            rate = sessions * tokens / (seconds(sessions * (position + 2)) + extra)
            if rate > best_rate:
                best, best_rate = position + 1, rate
        return best
