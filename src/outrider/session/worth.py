"""How many tokens are worth drafting: tokens per second, estimated from what was measured.

Lengths may depend on timings and on luck, because no length can change a token.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

from outrider.drafters.base import Proposal

#: Weight of the newest observation in running estimates, and in those of other passes.
_NEW: Final = 0.08
_COMMON: Final = 0.02
#: Rounds of the prior belief that an acceptance estimate starts from.
_PRIOR_WEIGHT: Final = 4.0
#: How well the position after a known one is expected to do, against it.
_NEXT: Final = 0.9
#: Rounds of memory of an acceptance estimate: older ones fade, since texts change.
_MEMORY: Final = 40.0
#: Promised tokens that a trust starts with, and that it remembers.
_TRUST_PRIOR: Final = 8.0
_TRUST_MEMORY: Final = 400.0
#: Tokens asked for at first; one more each time that all were accepted, and a little less each time
#: that they were not, so that they are in about one round of 25.
_ASK_FIRST: Final = 8.0
_ASK_MORE: Final = 1.0
_ASK_LESS: Final = 0.04
#: A draft that took less than this share of the usual price was a copy.
_COPY: Final = 0.25
#: Plain rounds after which one short draft is tried, to notice that the text has changed.
_PROBE_FIRST: Final = 8
_PROBE_LAST: Final = 128
#: Drafted rounds after which one goes without, so that the price of a plain pass stays known.
_PLAIN_EVERY: Final = 100
#: Estimated gain below which a full draft is not worth its risk.
_MARGIN: Final = 1.02
#: Share of plain speed that a drafted token may risk: what it meets with is how estimates learn.
_TOLERANCE: Final = 0.98
#: Chance of each position, given the one before it, before any was seen: a guess, which counts as
#: much as four rounds do.
EXPECTED_ACCEPTANCE: Final = (0.6, 0.6, 0.55, 0.5)


class CostCurve:
    """Seconds of a target pass by its rows, at a few knots, interpolated between them.

    A profile sets the knots. ``observe`` moves those beside a pass to what it took, and the others
    a little with them, since most changes of a machine's speed reach every pass alike.
    """

    def __init__(self, profile: Sequence[tuple[int, float]]) -> None:
        """Take (rows, seconds) knots."""
        self._rows = [rows for rows, _ in sorted(profile)]
        self._seconds = [seconds for _, seconds in sorted(profile)]
        self._floors = list(accumulate(self._seconds, max))
        self._places: dict[int, tuple[int, float]] = {}

    def seconds(self, rows: int) -> float:
        """Estimated seconds of a pass of ``rows`` rows, never less than that of fewer rows.

        The last slope goes on past the knots.
        """
        left, share = self._place(rows)
        below = self._floors[left]
        return below + share * (self._floors[left + 1] - below) if share else below

    def observe(self, rows: int, seconds: float) -> None:
        """Note what a pass took; a single outlier moves the estimate by little."""
        left, share = self._place(rows)
        error = min(max(seconds / self.seconds(rows), 0.5), 2.0) - 1.0
        near = {left: 1.0 - min(share, 1.0), left + 1: min(share, 1.0)}
        for knot in range(len(self._seconds)):
            self._seconds[knot] *= 1.0 + (_COMMON + _NEW * near.get(knot, 0.0)) * error
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

    def prior(self, length: int) -> list[float]:
        """The estimates of ``length`` positions, for another estimate to start from.

        A position that was hardly tried is believed to do nearly as well as the one before it.
        """
        chances: list[float] = []
        for position in range(length):
            prior = self._prior[min(position, len(self._prior) - 1)]
            if 0 < position <= len(self._tried):
                prior = max(prior, _NEXT * chances[-1])
            tried = self._tried[position] if position < len(self._tried) else 0.0
            kept = self._kept[position] if position < len(self._kept) else 0.0
            chances.append((kept + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT))
        return chances

    def conditional(self, position: int) -> float:
        """Estimated chance that ``position`` is accepted once the ones before it are."""
        return self.prior(position + 1)[-1]

    def reach(self, length: int) -> list[float]:
        """Estimated chance that each of ``length`` positions is reached and accepted."""
        return list(accumulate(self.prior(length), mul))


class Span:
    """How many tokens to ask a drafter for, which takes longer for more of them.

    Attributes:
        tokens: their running estimate, of which all are rarely accepted.
    """

    def __init__(self, tokens: float = _ASK_FIRST) -> None:
        """Start from ``tokens``."""
        self.tokens = tokens

    def record(self, asked: int, accepted: int) -> None:
        """Count one draft; one that was accepted, but too short to tell, says nothing."""
        if accepted >= self.tokens:
            self.tokens += _ASK_MORE
        elif accepted < asked:
            self.tokens = max(self.tokens - _ASK_LESS, 1.0)


class Trust:
    """How far a drafter's confidences hold: what was kept over what they promised.

    Confidence heads are trained on one kind of text and meet another; a single ratio brings their
    sums back to what the target accepts.
    """

    def __init__(self) -> None:
        """Believe the drafter at first."""
        self._promised = self._kept = _TRUST_PRIOR

    def record(self, confidences: Sequence[float], accepted: int) -> None:
        """Count one round's tokens up to the first that was refused."""
        for index, confidence in enumerate(confidences[: accepted + 1]):
            fade = min(1.0, _TRUST_MEMORY / (self._promised + 1.0))
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


class Belief:
    """What drafts of all sessions of one kind have met with; new sessions start from it.

    Attributes:
        acceptance: of full drafts.
        span: how many tokens were worth asking for.
    """

    def __init__(self, expected: Sequence[float]) -> None:
        """Start from ``expected``, acceptance by position before any was seen."""
        self.acceptance = Acceptance(expected)
        self.span = Span()
        self._trust = Trust()
        self._copy_trust = Trust()

    def trust(self, copied: bool) -> Trust:
        """How far confidences of copies, or of predictions, hold."""
        return self._copy_trust if copied else self._trust


class Pace:
    """One session's choice, round by round: when to draft, how much, how much of it to keep.

    Attributes:
        acceptance: what full drafts of this session have met with.
        asked: tokens to ask for in this round's full draft; copies are free and may be longer.
    """

    def __init__(self, belief: Belief, length: int) -> None:
        """Start from what other sessions met with, for drafts of up to ``length`` tokens."""
        self.acceptance = Acceptance(belief.acceptance.prior(length))
        self.asked = length
        self._span = Span(belief.span.tokens)
        self._belief = belief
        self._drafted_rounds = 0
        self._plain_rounds = 0
        self._probe_after = _PROBE_FIRST
        self._full = False
        self._probing = False

    def wants(self, length: int, worth: Worth) -> bool:
        """Whether to draft in full, up to ``length`` tokens, in this round."""
        self._probing = False
        self.asked = min(math.ceil(self._span.tokens), length)
        self._full = worth.length(self.acceptance.reach(self.asked)) > 0
        if self._full:
            self._plain_rounds, self._probe_after = 0, _PROBE_FIRST
            self._drafted_rounds += 1
            self._full = self._drafted_rounds % _PLAIN_EVERY != 0
            return self._full
        self._plain_rounds += 1
        if self._plain_rounds >= self._probe_after:
            # Each probe that changes nothing doubles the wait, so that their cost fades.
            self._plain_rounds = 0
            self._probe_after = min(2 * self._probe_after, _PROBE_LAST)
            self._full = self._probing = True
        return self._full

    def keep(self, proposal: Proposal, worth: Worth) -> int:
        """How many drafted tokens are worth a row each; a probe keeps some all the same."""
        if proposal.confidences:
            chances = self._belief.trust(proposal.copied).chances(proposal.confidences)
        else:
            chances = self.acceptance.reach(len(proposal.tokens))
        kept = worth.cut(chances)
        return max(kept, min(2, len(chances))) if self._probing else kept

    def record(self, judged: Proposal, accepted: int) -> None:
        """Note a verdict on the tokens that a round judged.

        A full draft of which nothing was worth keeping counts as a miss.
        """
        if self._full:
            for estimate in (self.acceptance, self._belief.acceptance):
                estimate.record(max(len(judged.tokens), 1), accepted)
            if not judged.copied:
                for span in (self._span, self._belief.span):
                    span.record(self.asked, accepted)
        self._belief.trust(judged.copied).record(judged.confidences, accepted)
        self._full = self._probing = False


class Worth:
    """The engine-wide prices: a pass by its rows, and drafting.

    Attributes:
        curve: seconds of a target pass by rows.
        seats: sessions that shared the last pass; a pass's fixed cost is split among them.
    """

    def __init__(
        self, curve: CostCurve, draft_seconds: float, expected: Sequence[float] = (0.6,)
    ) -> None:
        """Start from a profile of passes.

        Args:
            curve: seconds of a pass by rows.
            draft_seconds: seconds of one full draft.
            expected: acceptance by position before any was seen.
        """
        self.curve = curve
        self._greedy, self._sampled = Belief(expected), Belief(expected)
        self.seats = 1
        self._draft_seconds = draft_seconds

    def belief(self, temperature: float) -> Belief:
        """What sessions that draw like this have met with: drawn tokens are harder to guess."""
        return self._sampled if temperature > 0 else self._greedy

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
        return self._best(chances, _MARGIN, self._draft_seconds)

    def cut(self, chances: Sequence[float]) -> int:
        """As ``length``, for tokens that are already drafted: their cost is sunk.

        A little is risked on tokens that may not pay, since only judged tokens teach anything.
        """
        return self._best(chances, _TOLERANCE, 0.0)

    def _best(self, chances: Sequence[float], least: float, extra: float) -> int:
        """Length with the most tokens per second, 0 if none beats ``least`` times plain speed."""
        seats, seconds = self.seats, self.curve.seconds
        best, best_rate, tokens = 0, seats / seconds(seats) * least, 1.0
        for position, chance in enumerate(chances):
            tokens += chance
            rate = seats * tokens / (seconds(seats * (position + 2)) + extra)
            if rate > best_rate:
                best, best_rate = position + 1, rate
        return best
