"""What a drafter keeps for one session, and how that session's target will draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class DraftSampling:
    """How a session's target will draw, so that a drafter can draw alike.

    Attributes:
        temperature: 0 for greedy.
        seed: the key of the target's noise.
        stream: the noise stream to draw with. Under coupled verification it is the target's own,
            which makes the two agree more often; under rejection it is the drafter's.
    """

    temperature: float = 0.0
    seed: int = 0
    stream: int = 0


class DraftState(ABC):
    """What a drafter keeps for one session. It belongs to one session alone."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Committed rows observed so far, counted from position 0."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Forget what was observed at and after position ``length``."""

    def roll_back(self, length: int) -> None:
        """Return to ``length`` observed rows after a fault in the middle of whatever it did.

        Resources that several states share may be torn: ``Drafter.recover`` sets them right.
        """
        self.truncate(length)

    @abstractmethod
    def fork(self, sampling: DraftSampling | None = None) -> DraftState:
        """Return an independent state with the same observations.

        Args:
            sampling: how the new session's target draws; None as this one's.
        """

    @abstractmethod
    def release(self) -> None:
        """Return every resource."""
