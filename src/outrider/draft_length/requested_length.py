"""How many tokens to ask a drafter for."""

from __future__ import annotations

from typing import Final

#: Tokens asked for at first; the shipped block drafters propose 7. Set by hand; no measurement is
#: recorded.
FIRST: Final = 8.0
#: One token more each time that all were accepted, and a little less each time that they were not:
#: at rest, all are accepted in one round of 26, so that hardly a token that would have been
#: accepted is left out, and a drafter that takes longer for more tokens drafts few in vain. The
#: ratio of the two decides that; set by hand.
MORE: Final = 1.0
LESS: Final = 0.04


class RequestedLength:
    """How many tokens to ask a drafter for, which takes longer for more of them.

    Attributes:
        tokens: their running estimate, of which all are rarely accepted; at least 1.
    """

    def __init__(self, tokens: float = FIRST) -> None:
        """Start from ``tokens``."""
        self.tokens = tokens

    def record(self, asked: int, accepted: int) -> None:
        """Count one draft; one that was accepted, but too short to tell, says nothing."""
        if accepted >= self.tokens:
            self.tokens += MORE
        elif accepted < asked:
            self.tokens = max(self.tokens - LESS, 1.0)
