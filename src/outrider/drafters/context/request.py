"""A request for a draft over a paged context."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.drafters.context.state import ContextState


@dataclass(frozen=True)
class CheckedRequest:
    """A request whose state and tip were found sound.

    Attributes:
        place: its place in the call.
        state: the session's state.
        tip: its next token, at position ``state.length``.
        length: tokens to draft, at least 1, within what was asked for and what the drafter can.
    """

    place: int
    state: ContextState
    tip: int
    length: int
