"""A drafter for audits: it knows the right answers, and errs where it is told to.

What a real drafter proposes is seldom right for long, so it exercises long acceptances rarely and
some lengths never. This one makes every one of them happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.drafters.base import (
    CommittedRows,
    Drafter,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    DraftState,
    Proposal,
    Tail,
)

#: Knuth's multiplicative hash spreads the places of errors over all counts of right tokens.
MULTIPLIER: Final = 2654435761


class ReplayState(DraftState):
    """The committed tokens of one session."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)

    @property
    def length(self) -> int:
        """Committed tokens observed so far."""
        return len(self.tokens)

    def truncate(self, length: int) -> None:
        """Forget the tokens at and after position ``length``."""
        del self.tokens[length:]

    def fork(self, sampling: DraftSampling | None = None) -> ReplayState:
        """Return a copy."""
        return ReplayState(self.tokens)

    def release(self) -> None:
        """Forget everything."""
        self.tokens.clear()


class ReplayDrafter(Drafter):
    """Proposes known continuations with planted errors, always as many tokens as asked for."""

    name = "replay"
    max_draft = 15

    def __init__(self, streams: Sequence[Sequence[int]], vocab_size: int) -> None:
        """Learn the answers.

        Args:
            streams: prompt and output tokens of plain decoding, one sequence per request.
            vocab_size: an error is the right token plus one, modulo this.
        """
        self._streams = [list(stream) for stream in streams]
        self._vocab_size = vocab_size

    def begin(self, sampling: DraftSampling) -> ReplayState:
        """Return an empty state."""
        return ReplayState()

    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        """Append committed tokens."""
        for state, new in zip(states, rows, strict=True):
            _own(state).tokens.extend(new.tokens)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        """Continue each session's stream, right at first and wrong from a planted place on."""
        return [
            Proposal(self._draft([*_own(request.state).tokens, request.tip], request.computed))
            for request in requests
        ]

    def _draft(self, known: list[int], length: int) -> list[int]:
        right = self._continuation(known)[:length]
        # Past the end of a stream anything may be drafted, and nothing of it may come out.
        tokens = right + known[-1:] * (length - len(right))
        first_error = (len(known) * MULTIPLIER % 2**32 >> 16) % (length + 1)
        return [
            token if index < first_error else (token + 1) % self._vocab_size
            for index, token in enumerate(tokens)
        ]

    def _continuation(self, known: list[int]) -> list[int]:
        for stream in self._streams:
            if stream[: len(known)] == known:
                return stream[len(known) :]
        return []

    def export_tail(self, state: DraftState, upto: int) -> Tail | None:
        """Publish nothing."""
        return None

    def restore(self, tail: Tail, sampling: DraftSampling) -> DraftState | None:
        """Refuse: nothing was published."""
        return None


def _own(state: DraftState) -> ReplayState:
    if not isinstance(state, ReplayState):
        raise TypeError("the state belongs to another drafter")
    return state
