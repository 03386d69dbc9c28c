"""What a target pass costs by its rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

#: Share of a pass's error by which the knots beside it move: a dozen passes are remembered. More
#: follows a busier machine sooner and single slow passes too. Set by hand; no measurement of the
#: value is recorded, only of the need (dev/LOG.md, "Does drafting pay on two cores?": a profile
#: disturbed at start-up was believed for a whole run).
NEAR_RATE: Final = 0.08
#: The same for all other knots, since most changes of a machine's speed reach every pass alike. A
#: quarter of ``NEAR_RATE``, so that one row count's own change is not taken for the machine's. Set
#: by hand.
COMMON_RATE: Final = 0.02
#: A pass counts as at most this many times slower, or faster, than estimated: the first draft of a
#: process took several times as long as later ones and was believed (dev/LOG.md, "Can the draft
#: length be chosen from running estimates alone?").
MOST_SURPRISE: Final = 2.0


class CostCurve:
    """Seconds of a target pass by its rows, at a few knots, interpolated between them.

    A profile sets the knots. ``observe`` moves those beside a pass to what it took, and the others
    a little with them.
    """

    def __init__(self, profile: Sequence[tuple[int, float]]) -> None:
        """Take (rows, seconds) knots, at least one, in any order."""
        self._rows = [rows for rows, _ in sorted(profile)]
        self._seconds = [seconds for _, seconds in sorted(profile)]
        self._floors = list(accumulate(self._seconds, max))
        self._places: dict[int, tuple[int, float]] = {}

    def seconds(self, rows: int) -> float:
        """Estimated seconds of a pass of ``rows`` rows, never less than that of fewer rows.

        The last slope goes on past the knots.
        """
        left, fraction = self._place(rows)
        below = self._floors[left]
        return below + fraction * (self._floors[left + 1] - below) if fraction else below

    def observe(self, rows: int, seconds: float) -> None:
        """Note what a pass took; a single outlier moves the estimate by little."""
        left, fraction = self._place(rows)
        ratio = seconds / self.seconds(rows)
        error = min(max(ratio, 1.0 / MOST_SURPRISE), MOST_SURPRISE) - 1.0
        near = {left: 1.0 - min(fraction, 1.0), left + 1: min(fraction, 1.0)}
        for knot in range(len(self._seconds)):
            self._seconds[knot] *= 1.0 + (COMMON_RATE + NEAR_RATE * near.get(knot, 0.0)) * error
        self._floors = list(accumulate(self._seconds, max))

    def _place(self, rows: int) -> tuple[int, float]:
        """The knot at or below ``rows``, and how far it is to the next: past the last, above 1."""
        place = self._places.get(rows)
        if place is None:
            place = self._places[rows] = self._find(rows)
        return place

    def _find(self, rows: int) -> tuple[int, float]:
        if len(self._rows) == 1 or rows <= self._rows[0]:
            return 0, 0.0
        left = min(bisect_right(self._rows, rows), len(self._rows) - 1) - 1
        return left, (rows - self._rows[left]) / (self._rows[left + 1] - self._rows[left])
