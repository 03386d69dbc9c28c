"""What a round drafts in one session, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class DraftMode(Enum):
    """Why a round drafts in full, or does not."""

    FULL = auto()
    """A full draft is expected to pay, or its length is fixed."""
    PRICING = auto()
    """It would pay, but the price of a round without must stay known."""
    BRIEF = auto()
    """It would not pay."""
    PROBE = auto()
    """It is not expected to pay, and tried all the same: the text may have changed."""


@dataclass(frozen=True)
class DraftDecision:
    """What one session's round drafts, decided before the drafter is asked.

    It travels with the session's rows: deciding changes nothing, so a round that is interrupted and
    repeated leaves nothing behind, and whoever records a verdict knows what had been decided.

    Attributes:
        mode: why.
        asked: tokens to ask for where tokens cost time; copies are free and may be longer. 0 asks
            only for what costs next to nothing.
    """

    mode: DraftMode
    asked: int = 0

    @property
    def full(self) -> bool:
        """Whether the drafter is asked for tokens that cost time."""
        return self.asked > 0
