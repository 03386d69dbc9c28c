"""What became of one session's draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DraftOutcome:
    """What a round made of a draft.

    Attributes:
        kept: drafted tokens that were given a row each, possibly none.
        accepted: how many of them, from the first on, the target accepted.
        ended: whether the stream ended in this round.
        confidences: the drafter's for the kept tokens, or none.
        copied: whether the tokens were copied rather than predicted.
    """

    kept: int
    accepted: int
    ended: bool = False
    confidences: Sequence[float] = ()
    copied: bool = False

    @property
    def cut_short(self) -> bool:
        """Whether the stream ended amid the draft, so that nothing is known of what follows."""
        return self.ended and self.accepted < self.kept

    @property
    def judged(self) -> int:
        """Tokens that the target was heard on, a refused one and those after it included."""
        return self.accepted if self.cut_short else self.kept
