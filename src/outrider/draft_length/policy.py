"""One session's draft lengths, round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from outrider.draft_length.acceptance import AcceptanceStatistics
from outrider.draft_length.goodput import Goodput
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

    Attributes:
        acceptance: what full drafts of this session have met with.
        asked: tokens to ask for in this round's full draft; copies are free and may be longer.
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
        self.asked = longest
        self._requested = RequestedLength(self._shared.requested.tokens)
        self._drafted_rounds = 0
        self._plain_rounds = 0
        self._probe_after = FIRST_PROBE
        self._full = False
        self._probing = False

    def wants(self, most: int) -> bool:
        """Whether to draft in full, up to ``most`` tokens, in this round."""
        self._probing = False
        self.asked = min(math.ceil(self._requested.tokens), most)
        self._full = self._goodput.length(self.acceptance.chances(self.asked)) > 0
        if self._full:
            self._plain_rounds, self._probe_after = 0, FIRST_PROBE
            self._drafted_rounds += 1
            self._full = self._drafted_rounds % PLAIN_EVERY != 0
            return self._full
        self._plain_rounds += 1
        if self._plain_rounds >= self._probe_after:
            self._plain_rounds = 0
            self._probe_after = min(2 * self._probe_after, LAST_PROBE)
            self._full = self._probing = True
        return self._full

    def keep(self, drafted: int, confidences: Sequence[float], copied: bool) -> int:
        """How many drafted tokens are worth a row each; a probe keeps some all the same.

        Args:
            drafted: tokens of the draft.
            confidences: the drafter's, one per token, or none.
            copied: whether the tokens were copied rather than predicted.
        """
        if confidences:
            chances = self._shared.calibration(copied).chances(confidences)
        else:
            chances = self.acceptance.chances(drafted)
        kept = self._goodput.cut(chances)
        return max(kept, min(PROBE_TOKENS, len(chances))) if self._probing else kept

    def record(
        self, judged: int, accepted: int, confidences: Sequence[float] = (), copied: bool = False
    ) -> None:
        """Note a verdict on the tokens that a round judged.

        A full draft of which nothing was worth keeping counts as a miss.

        Args:
            judged: drafted tokens that were judged.
            accepted: how many of them, from the first on, the target accepted.
            confidences: the drafter's for the judged tokens, or none.
            copied: whether the tokens were copied rather than predicted.
        """
        if self._full:
            for estimate in (self.acceptance, self._shared.acceptance):
                estimate.record(max(judged, 1), accepted)
            if not copied:
                for requested in (self._requested, self._shared.requested):
                    requested.record(self.asked, accepted)
        self._shared.calibration(copied).record(confidences, accepted)
        self._full = self._probing = False
