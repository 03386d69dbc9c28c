"""How many tokens are worth drafting: tokens per second, estimated from what was measured.

Lengths may depend on timings and on luck, because no length can change a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Weight of the newest observation in running estimates.
_NEW: Final = 0.08
#: Rounds of the prior belief that an acceptance estimate starts from.
_PRIOR_WEIGHT: Final = 4.0
#: How well the position after a known one is expected to do, against it.
_NEXT: Final = 0.9
#: Rounds of memory of an acceptance estimate: older ones fade, since texts change.
_MEMORY: Final = 40.0
#: A draft that took less than this share of the usual price was a copy.
_COPY: Final = 0.25
#: Plain rounds after which one short draft is tried, to notice that the text has changed.
_PROBE_FIRST: Final = 8
_PROBE_LAST: Final = 128
#: Estimated gain below which a full draft is not worth its risk.
_MARGIN: Final = 1.02
#: Share of plain speed that a drafted token may risk: what it meets with is how estimates learn.
_TOLERANCE: Final = 0.98


class CostCurve:
    """Seconds of a target pass by its rows, from a profile, interpolated between its knots.

    Only ratios matter to the choice; ``observe`` follows the machine's drift.
    """

    def __init__(self, profile: Sequence[tuple[int, float]]) -> None:
        """Take (rows, seconds) knots; seconds are made non-decreasing in rows."""
        knots, floor = [], 0.0
        for rows, seconds in sorted(profile):
            floor = max(floor, seconds)
            knots.append((rows, floor))
        self._knots = knots
        self._drift = 1.0

    def seconds(self, rows: int) -> float:
        """Estimated seconds of a pass of ``rows`` rows; the last slope goes on past the knots."""
        below, above = self._knots[0], self._knots[-1]
        for left, right in zip(self._knots, self._knots[1:], strict=False):
            below, above = left, right
            if rows <= right[0]:
                break
        if rows <= below[0] or above[0] == below[0]:
            return below[1] * self._drift
        slope = (above[1] - below[1]) / (above[0] - below[0])
        return (below[1] + slope * (rows - below[0])) * self._drift

    def observe(self, rows: int, seconds: float) -> None:
        """Note what a pass took; a single outlier moves the estimate by little."""
        ratio = seconds * self._drift / self.seconds(rows)
        bounded = min(max(ratio, self._drift / 2), self._drift * 2)
        self._drift += _NEW * (bounded - self._drift)


class Acceptance:
    """Running estimate of acceptance by position, given that the position before was accepted."""

    def __init__(self, prior: Sequence[float]) -> None:
        """Start from ``prior``; positions past its end take its last value."""
        self._prior = list(prior)
        self._tried: list[float] = []
        self._kept: list[float] = []

    def record(self, drafted: int, accepted: int) -> None:
        """Count one round: positions below ``accepted`` held; the next, if drafted, did not."""
        reached = min(accepted + 1, drafted)
        self._tried.extend([0.0] * (reached - len(self._tried)))
        self._kept.extend([0.0] * (reached - len(self._kept)))
        for position in range(reached):
            fade = min(1.0, _MEMORY / (self._tried[position] + 1.0))
            self._tried[position] = self._tried[position] * fade + 1.0
            self._kept[position] = self._kept[position] * fade + float(position < accepted)

    def conditional(self, position: int) -> float:
        """Estimated chance that ``position`` is accepted once the ones before it are.

        A position that was hardly tried is believed to do nearly as well as the one before it.
        """
        prior = self._prior[min(position, len(self._prior) - 1)]
        if 0 < position <= len(self._tried):
            prior = max(prior, _NEXT * self.conditional(position - 1))
        tried = self._tried[position] if position < len(self._tried) else 0.0
        kept = self._kept[position] if position < len(self._kept) else 0.0
        return (kept + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT)

    def reach(self, length: int) -> list[float]:
        """Estimated chance that each of ``length`` positions is reached and accepted."""
        chances, chance = [], 1.0
        for position in range(length):
            chance *= self.conditional(position)
            chances.append(chance)
        return chances


class Pace:
    """One session's choice, round by round: when to draft, how much of it to keep.

    Attributes:
        acceptance: what full drafts of this session have met with.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self.acceptance = Acceptance(prior)
        self._plain_rounds = 0
        self._probe_after = _PROBE_FIRST
        self._full = False
        self._probing = False

    def wants(self, length: int, worth: Worth) -> bool:
        """Whether to draft in full, up to ``length`` tokens, in this round."""
        self._probing = False
        self._full = worth.length(self.acceptance.reach(length)) > 0
        if self._full:
            self._plain_rounds, self._probe_after = 0, _PROBE_FIRST
            return True
        self._plain_rounds += 1
        if self._plain_rounds >= self._probe_after:
            # Each probe that changes nothing doubles the wait, so that their cost fades.
            self._plain_rounds = 0
            self._probe_after = min(2 * self._probe_after, _PROBE_LAST)
            self._full = self._probing = True
        return self._full

    def keep(self, chances: Sequence[float], worth: Worth) -> int:
        """How many drafted tokens are worth a row each; a probe keeps some all the same."""
        kept = worth.cut(chances)
        return max(kept, min(2, len(chances))) if self._probing else kept

    def record(self, drafted: int, accepted: int) -> None:
        """Note a verdict. A full draft of which nothing was worth keeping counts as a miss."""
        if self._full:
            self.acceptance.record(max(drafted, 1), accepted)
        self._full = self._probing = False


class Worth:
    """The engine-wide prices: a pass by its rows, and drafting.

    Attributes:
        curve: seconds of a target pass by rows.
        seats: sessions that shared the last pass; a pass's fixed cost is split among them.
    """

    def __init__(self, curve: CostCurve, draft_seconds: float) -> None:
        """Start from a profile of passes, and seconds of one full draft."""
        self.curve = curve
        self.seats = 1
        self._draft_seconds = draft_seconds

    def observe(self, rows: int, seats: int, draft_seconds: float | None, seconds: float) -> None:
        """Note one round: its rows, its sessions, and what drafting and the pass took."""
        self.curve.observe(rows, seconds)
        self.seats = seats
        # Copies go out with full drafts and cost nothing beside them; they are no price.
        if draft_seconds is not None and draft_seconds > self._draft_seconds * _COPY:
            bounded = min(draft_seconds, 2 * self._draft_seconds)
            self._draft_seconds += _NEW * (bounded - self._draft_seconds)

    def length(self, chances: Sequence[float]) -> int:
        """Length with the most tokens per second, 0 if none beats plain decoding.

        Args:
            chances: estimated chance that each drafted position is accepted, in order.
        """
        plain = self.seats / self.curve.seconds(self.seats)
        best, best_rate, tokens = 0, plain * _MARGIN, 1.0
        for position, chance in enumerate(chances):
            tokens += chance
            rows = self.seats * (position + 2)
            rate = self.seats * tokens / (self.curve.seconds(rows) + self._draft_seconds)
            if rate > best_rate:
                best, best_rate = position + 1, rate
        return best

    def cut(self, chances: Sequence[float]) -> int:
        """As ``length``, for tokens that are already drafted: their cost is sunk.

        A little is risked on tokens that may not pay, since only judged tokens teach anything.
        """
        plain = self.seats / self.curve.seconds(self.seats)
        best, best_rate, tokens = 0, plain * _TOLERANCE, 1.0
        for position, chance in enumerate(chances):
            tokens += chance
            rate = self.seats * tokens / self.curve.seconds(self.seats * (position + 2))
            if rate > best_rate:
                best, best_rate = position + 1, rate
        return best
