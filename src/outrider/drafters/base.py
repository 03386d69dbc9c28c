"""The drafter protocol: everything the rest of the engine knows about drafting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from outrider.drafters.draft_request import DraftRequest
from outrider.drafters.state import DraftSampling, DraftState

__all__ = [
    "CommittedRows",
    "DraftRequest",
    "DraftSampling",
    "DraftState",
    "Drafter",
    "DrafterFault",
    "Proposal",
    "Tail",
    "confident",
]


class DrafterFault(Exception):  # noqa: N818 - a condition that rounds handle, not an error
    """The drafter failed on one session's state; that session goes plain for the round."""


@dataclass(frozen=True)
class CommittedRows:
    """Rows that became committed in one round, of one session.

    Attributes:
        tokens: their tokens in order.
        start: absolute position of the first.
        taps: tapped target states, float32 [len(tokens), taps H], or None if none were asked for.
    """

    tokens: Sequence[int]
    start: int
    taps: Tensor | None


@dataclass(frozen=True)
class Proposal:
    """Tokens drafted for one session.

    Attributes:
        tokens: at most as many as were asked for, possibly none.
        probabilities: what they were drawn from, float32 [len(tokens), V], or None if each token
            was certain (a one-hot distribution). Only rejection sampling reads it.
        confidences: estimated acceptance of each token given that those before it were accepted,
            or empty.
        copied: whether they were copied from the session's own text rather than predicted.
    """

    tokens: list[int] = field(default_factory=list)
    probabilities: Tensor | None = None
    confidences: list[float] = field(default_factory=list)
    copied: bool = False


def confident(confidences: Sequence[float], threshold: float) -> int:
    """How many tokens come before the first whose confidence is below ``threshold``."""
    low = (index for index, sure in enumerate(confidences) if sure < threshold)
    return next(low, len(confidences))


class Tail(ABC):
    """The newest draft rows, enough to go on as if drafting had never stopped.

    Attributes:
        upto: position after the last row: the position that was published.
    """

    upto: int

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes it holds."""


class Drafter(ABC):
    """Proposes tokens for many sessions at once.

    Attributes:
        name: what users call it.
        taps: target layers whose residual outputs it reads, -1 for the embedding.
        max_draft: most tokens it can propose.
        max_position: it does not draft for tips at or beyond this position, or None.
        page_nbytes: bytes of a page of its context cache, 0 if it has none.
    """

    name: str
    taps: tuple[int, ...] = ()
    max_draft: int
    max_position: int | None = None
    page_nbytes: int = 0

    @abstractmethod
    def begin(self, sampling: DraftSampling) -> DraftState:
        """Return the state of a new session."""

    @abstractmethod
    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        """Ingest newly committed rows, one entry per state, continuing where each state ends.

        Rows without taps, although the drafter reads some, were reused from a cache and never
        computed: the state moves past them and starts cold.
        """

    @abstractmethod
    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Proposal | DrafterFault]:
        """Propose tokens to follow every session's tip.

        Returns:
            One entry per request: its proposal, of at most ``most`` tokens, or the fault that
            spoils this session's round.
        """

    @abstractmethod
    def export_tail(self, state: DraftState, upto: int) -> Tail | None:
        """Copy out what a restored session needs to draft from position ``upto`` on.

        ``upto`` is the published position, which may be below the state's length. None if there is
        nothing to publish.
        """

    @abstractmethod
    def restore(self, tail: Tail, sampling: DraftSampling) -> DraftState | None:
        """Rebuild a state from a tail. None if the tail does not suffice."""

    def recover(self, states: Sequence[DraftState]) -> None:  # noqa: B027 - optional
        """Account anew for what all states that exist hold, after a fault anywhere."""

    def audit(self, states: Sequence[DraftState]) -> None:  # noqa: B027 - optional
        """Check resource accounting against all states that exist.

        Raises:
            AssertionError: something leaked or is held twice.
        """
