"""What one session asks its drafter for in a round."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.drafters.state import DraftState


@dataclass(frozen=True)
class DraftRequest:
    """One session that wants a draft.

    Attributes:
        state: its state, which has observed all its committed rows.
        tip: its next token, emitted but not committed.
        most: most tokens that it can use, at least 1.
        budget: tokens that the drafter should spend computing on, at least 0. Tokens that cost
            nothing, copies of the session's own text, may be more: up to ``most``.
    """

    state: DraftState
    tip: int
    most: int
    budget: int

    @property
    def computed(self) -> int:
        """Tokens to compute, where each of them costs time: what is within both limits."""
        return min(self.most, self.budget)
