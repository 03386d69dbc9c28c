"""One session's slots, and what the next ones are paired with."""

from __future__ import annotations

from outrider.caches.paged import PagedCache
from outrider.drafters.base import DraftSampling, DraftState
from outrider.drafters.context.state import ContextState
from outrider.drafters.mtp.hidden_states import HiddenStates


class MtpState(ContextState):
    """Cached slots, and the target's hidden states that the next ones are paired with.

    Attributes:
        hidden: target states of the newest positions.
    """

    def __init__(
        self, cache: PagedCache, sampling: DraftSampling, hidden: HiddenStates | None = None
    ) -> None:
        super().__init__(cache, sampling)
        self.hidden = HiddenStates() if hidden is None else hidden

    def truncate(self, length: int) -> None:
        """Forget slots and states at and after ``length``.

        Further back than states are kept nothing is left: the next slot could not be paired.
        """
        super().truncate(length)
        self.hidden.truncate(length)
        if self.hidden.at(length - 1) is None:
            self.skip_to(length)

    def roll_back(self, length: int) -> None:
        """Return to ``length`` slots and states."""
        super().roll_back(length)
        self.hidden.truncate(length)

    def skip_to(self, length: int) -> None:
        """Drop every slot and go on at ``length``: no earlier state is paired again."""
        super().skip_to(length)
        self.hidden = HiddenStates()

    def fork(self, sampling: DraftSampling | None = None) -> MtpState:
        """Return an independent state."""
        return MtpState(self.cache.fork(), sampling or self.sampling, self.hidden.copy())

    def release(self) -> None:
        """Return every page and forget all states."""
        super().release()
        self.hidden = HiddenStates()


def mtp_state(state: DraftState) -> MtpState:
    """Narrow a state to this module's.

    Raises:
        TypeError: it belongs to another drafter.
    """
    if not isinstance(state, MtpState):
        raise TypeError("the state belongs to another drafter")
    return state
