"""What one session drafts with."""

from __future__ import annotations

from outrider.draft_length.policy import DraftLengthPolicy
from outrider.drafters.base import Drafter, DraftSampling, DraftState


class SessionDrafter:
    """One session's side of a drafter: its state there, and its choice of lengths.

    Attributes:
        sampling: how the session's target draws.
        policy: chooses its draft lengths; None drafts as many tokens as are asked for.
        state: what the drafter keeps for the session.
        paused: it observes but does not draft.
    """

    def __init__(
        self, drafter: Drafter, sampling: DraftSampling, policy: DraftLengthPolicy | None
    ) -> None:
        """Begin a fresh state."""
        self._drafter = drafter
        self.sampling = sampling
        self.policy = policy
        self.state: DraftState = drafter.begin(sampling)
        self.paused = False

    def room(self, known: int, wanted: int) -> int:
        """How many of ``wanted`` tokens it may draft after ``known`` decided ones."""
        end = self._drafter.max_position
        return max(wanted if end is None else min(wanted, end - known), 0)

    def adopt(self, first: SessionDrafter, rows: int) -> None:
        """Start from the first ``rows`` rows that another session's drafter observed."""
        self.state.release()
        self.state = first.state.fork(self.sampling)
        self.state.truncate(rows)

    def restart(self) -> None:
        """Forget every row, and observe from position 0 on."""
        self.state.release()
        self.state = self._drafter.begin(self.sampling)

    def release(self) -> None:
        """Return every resource."""
        self.state.release()
