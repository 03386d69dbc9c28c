"""What the scheduler knows of a session."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Job(Protocol):
    """What the scheduler knows of a session."""

    @property
    def pending(self) -> int:
        """Decided tokens to feed; 1 while decoding."""

    @property
    def draftable(self) -> int:
        """Most draft tokens that could be of use."""

    @property
    def pages_held(self) -> int:
        """Pages in its table, shared ones included."""

    def pages_needed(self, rows: int) -> int:
        """Pages that feeding ``rows`` rows would take."""

    def restart(self) -> None:
        """Return every page; the job starts over from its tokens."""


J = TypeVar("J", bound=Job)
