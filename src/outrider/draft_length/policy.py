"""One session's draft lengths, round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from outrider.draft_length.acceptance import AcceptanceStatistics
from outrider.draft_length.decision import DraftDecision, DraftMode
from outrider.draft_length.goodput import Goodput
from outrider.draft_length.outcome import DraftOutcome
from outrider.draft_length.requested_length import RequestedLength

#: Plain rounds after which one short draft is tried, to notice that the text has changed. Each
#: probe that changes nothing doubles the wait, up to the last value, so that a drafter that never
#: helps costs less than a hundredth of the rounds, and one that begins to is found within an answer
#: or two. Set by hand; ``test_never_much_slower_than_plain`` bounds the cost in simulation.
FIRST_PROBE: Final = 8
LAST_PROBE: Final = 128
#: Tokens of a probe that are judged, worth their rows or not.
PROBE_TOKENS: Final = 2
#: Drafted rounds of which the last goes without, so that the price of a plain pass stays known: a
#: profile disturbed at start-up had made rows look free for a whole run (dev/LOG.md, "Does drafting
#: pay on two cores?"). It costs a hundredth of the gain at most.
PLAIN_EVERY: Final = 100


class DraftLengthPolicy:
    """One session's choice, round by round: when to draft, how much, how much of it to keep.

    ``decide`` and ``keep`` change nothing; ``record`` is the only place that learns.

    Attributes:
        acceptance: what full drafts of this session have met with.
    """

    def __init__(self, goodput: Goodput, temperature: float, longest: int) -> None:
        """Start from what other sessions met with.

        Args:
            goodput: the engine's prices.
            temperature: the session's, 0 for greedy.
            longest: most tokens of a draft.
        """
        self._goodput = goodput
        self._shared = goodput.statistics(temperature)
        self.acceptance = AcceptanceStatistics(self._shared.acceptance.conditionals(longest))
        self._requested = RequestedLength(self._shared.requested.tokens)
        self._drafted_rounds = 0
        self._plain_rounds = 0
        self._probe_after = FIRST_PROBE

    def decide(self, most: int) -> DraftDecision:
        """Whether to draft in full, up to ``most`` tokens, in this round."""
        asked = min(math.ceil(self._requested.tokens), most)
        if self._goodput.length(self.acceptance.chances(asked)) > 0:
            if (self._drafted_rounds + 1) % PLAIN_EVERY == 0:
                return DraftDecision(DraftMode.PRICING)
            return DraftDecision(DraftMode.FULL, asked)
        if self._plain_rounds + 1 >= self._probe_after:
            return DraftDecision(DraftMode.PROBE, asked)
        return DraftDecision(DraftMode.BRIEF)

    def keep(
        self, decision: DraftDecision, drafted: int, confidences: Sequence[float], copied: bool
    ) -> int:
        """How many drafted tokens are worth a row each; a probe keeps some all the same.

        Args:
            decision: what this round drafts.
            drafted: tokens of the draft.
            confidences: the drafter's, one per token, or none.
            copied: whether the tokens were copied rather than predicted.
        """
        if confidences:
            chances = self._shared.calibration(copied).chances(confidences)
        else:
            chances = self.acceptance.chances(drafted)
        kept = self._goodput.cut(chances)
        if decision.mode is DraftMode.PROBE:
            return max(kept, min(PROBE_TOKENS, len(chances)))
        return kept

    def record(self, decision: DraftDecision, outcome: DraftOutcome) -> None:
        """Note what became of a round's draft.

        A full draft of which nothing was worth keeping counts as a miss. Where the stream ended,
        what follows was not refused.
        """
        self._count(decision)
        if decision.full:
            judged = outcome.judged if outcome.kept else 1
            for estimate in (self.acceptance, self._shared.acceptance):
                estimate.record(judged, outcome.accepted)
            if not outcome.copied:
                asked = outcome.accepted if outcome.cut_short else decision.asked
                for requested in (self._requested, self._shared.requested):
                    requested.record(asked, outcome.accepted)
        heard = outcome.confidences[: outcome.judged]
        self._shared.calibration(outcome.copied).record(heard, outcome.accepted)

    def _count(self, decision: DraftDecision) -> None:
        """Count the round towards the next probe, or the next round without a draft."""
        if decision.mode is DraftMode.BRIEF:
            self._plain_rounds += 1
        elif decision.mode is DraftMode.PROBE:
            self._plain_rounds = 0
            self._probe_after = min(2 * self._probe_after, LAST_PROBE)
        else:
            self._plain_rounds, self._probe_after = 0, FIRST_PROBE
            self._drafted_rounds += 1
