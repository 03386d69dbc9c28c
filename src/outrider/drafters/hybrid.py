"""Hybrid drafting: copy where the text repeats itself, predict elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

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
from outrider.drafters.ngram import NgramDrafter, NgramState, NgramTail

#: Tokens of a match from which a copy goes before a prediction. By judgement.
LONG_MATCH: Final = 6
#: Rows that may wait for the learned drafter; more are handed over at once, to bound memory.
MOST_WAITING: Final = 64


class HybridState(DraftState):
    """The states of both drafters, which observe the same rows.

    The learned drafter's rows wait until it is asked: while the engine decodes plainly, or copies,
    observing costs nothing, and rows handed over together cost little more than one.

    Attributes:
        ngram: the n-gram drafter's state.
        learned: the learned drafter's state.
        waiting: rows that the learned drafter has yet to observe, in order.
    """

    def __init__(
        self, ngram: NgramState, learned: DraftState, waiting: Sequence[CommittedRows] = ()
    ) -> None:
        self.ngram = ngram
        self.learned = learned
        self.waiting = list(waiting)

    @property
    def waiting_rows(self) -> int:
        """How many rows wait."""
        return sum(len(rows.tokens) for rows in self.waiting)

    @property
    def length(self) -> int:
        """Committed rows observed so far, waiting ones included."""
        return self.learned.length + self.waiting_rows

    def truncate(self, length: int) -> None:
        """Forget what both observed at and after ``length``."""
        self.ngram.truncate(length)
        self.waiting = [_until(rows, length) for rows in self.waiting if rows.start < length]
        if length < self.learned.length:
            self.learned.truncate(length)

    def roll_back(self, length: int) -> None:
        """Return both states to ``length`` rows."""
        self.ngram.roll_back(length)
        self.waiting = [_until(rows, length) for rows in self.waiting if rows.start < length]
        self.learned.roll_back(min(length, self.learned.length))

    def fork(self, sampling: DraftSampling | None = None) -> HybridState:
        """Return an independent state."""
        return HybridState(self.ngram.fork(sampling), self.learned.fork(sampling), self.waiting)

    def release(self) -> None:
        """Release both states."""
        self.ngram.release()
        self.learned.release()
        self.waiting.clear()


def _until(rows: CommittedRows, length: int) -> CommittedRows:
    """The rows below position ``length``."""
    count = min(len(rows.tokens), length - rows.start)
    return CommittedRows(
        rows.tokens[:count], rows.start, None if rows.taps is None else rows.taps[:count]
    )


@dataclass(frozen=True)
class HybridTail(Tail):
    """The tails of both drafters at one position."""

    upto: int
    ngram: NgramTail
    learned: Tail

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.ngram.nbytes + self.learned.nbytes


class HybridDrafter(Drafter):
    """The n-gram drafter where its match is long, a learned drafter for the rest."""

    def __init__(self, ngram: NgramDrafter, learned: Drafter, long_match: int = LONG_MATCH) -> None:
        """Join two drafters.

        Args:
            ngram: copies.
            learned: predicts.
            long_match: least tokens of a match that the copy needs to go first.
        """
        self.ngram = ngram
        self.learned = learned
        self.long_match = long_match
        self.name = f"{ngram.name}+{learned.name}"
        self.taps = learned.taps
        self.max_draft = max(ngram.max_draft, learned.max_draft)
        self.max_position = None
        self.page_nbytes = ngram.page_nbytes + learned.page_nbytes

    def begin(self, sampling: DraftSampling) -> HybridState:
        """Return fresh states of both."""
        return HybridState(self.ngram.begin(sampling), self.learned.begin(sampling))

    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        """Let both observe everything, so that either can draft next."""
        mine = [hybrid_state(state) for state in states]
        self.ngram.observe([state.ngram for state in mine], rows)
        full = []
        for state, new in zip(mine, rows, strict=True):
            if state.waiting_rows + len(new.tokens) > MOST_WAITING:
                state.waiting.append(new)
                full.append(state)
            else:
                state.waiting.append(_copied(new))
        self._hand_over(full)

    def _hand_over(self, states: Sequence[HybridState]) -> None:
        """Let the learned drafter observe what waits, joined into one run of rows per session."""
        behind = [state for state in states if state.waiting]
        if not behind:
            return
        joined = [_joined(state.waiting) for state in behind]
        for state in behind:
            state.waiting = []
        try:
            self.learned.observe([state.learned for state in behind], joined)
        except BaseException:
            for state, rows in zip(behind, joined, strict=True):
                if state.learned.length == rows.start:  # not observed: it waits on
                    state.waiting = [rows]
            raise

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        """Copy for sessions with a long match; ask the learned drafter for the others at once.

        A session without a budget, or beyond the learned drafter's last position, copies any match.
        """
        mine = [hybrid_state(request.state) for request in requests]
        copies = [self._copies(*pair) for pair in zip(mine, requests, strict=True)]
        copied = [place for place, copy in enumerate(copies) if copy]
        predicted = [place for place, copy in enumerate(copies) if not copy]
        self._hand_over([mine[place] for place in predicted])
        answers: dict[int, Proposal | DrafterFault] = {}
        if copied:
            asked = [replace(requests[place], state=mine[place].ngram) for place in copied]
            answers.update(zip(copied, self.ngram.propose(asked), strict=True))
        if predicted:
            asked = [replace(requests[place], state=mine[place].learned) for place in predicted]
            answers.update(zip(predicted, self.learned.propose(asked), strict=True))
        return [answers[place] for place in range(len(mine))]

    def _copies(self, state: HybridState, request: DraftRequest) -> bool:
        """Whether the n-gram drafter serves this session now."""
        limit = self.learned.max_position
        if not request.budget or (limit is not None and state.length >= limit):
            return True
        return self.ngram.match_length(state.ngram, request.tip) >= self.long_match

    def export_tail(self, state: DraftState, upto: int) -> HybridTail | None:
        """Export both tails; None if either drafter has none."""
        mine = hybrid_state(state)
        self._hand_over([mine])
        learned = self.learned.export_tail(mine.learned, upto)
        ngram = self.ngram.export_tail(mine.ngram, upto)
        return None if learned is None or ngram is None else HybridTail(upto, ngram, learned)

    def restore(self, tail: Tail, sampling: DraftSampling) -> HybridState | None:
        """Rebuild both states; None if either refuses."""
        if not isinstance(tail, HybridTail):
            return None
        learned = self.learned.restore(tail.learned, sampling)
        ngram = self.ngram.restore(tail.ngram, sampling)
        if ngram is None or learned is None:
            for state in (ngram, learned):
                if state is not None:
                    state.release()
            return None
        return HybridState(ngram, learned)

    def recover(self, states: Sequence[DraftState]) -> None:
        """Account anew for what the states of both hold."""
        mine = [hybrid_state(state) for state in states]
        self.ngram.recover([state.ngram for state in mine])
        self.learned.recover([state.learned for state in mine])

    def audit(self, states: Sequence[DraftState]) -> None:
        """Check the resources of both, and that both observed the same rows.

        Raises:
            AssertionError: something leaked, is held twice, or the two are out of step.
        """
        mine = [hybrid_state(state) for state in states]
        self.ngram.audit([state.ngram for state in mine])
        self.learned.audit([state.learned for state in mine])
        for state in mine:
            if state.ngram.length != state.length:
                raise AssertionError("the two drafters are out of step")


def _copied(rows: CommittedRows) -> CommittedRows:
    """The rows in memory of their own: a view would keep the taps of a whole pass alive."""
    return rows if rows.taps is None else replace(rows, taps=rows.taps.clone())


def _joined(pieces: Sequence[CommittedRows]) -> CommittedRows:
    """Consecutive rows as one; a piece without taps, or out of step, is left to the drafter."""
    tokens = [token for piece in pieces for token in piece.tokens]
    taps = [piece.taps for piece in pieces if piece.taps is not None]
    whole = torch.cat(taps) if taps and len(taps) == len(pieces) else None
    return CommittedRows(tokens, pieces[0].start, whole)


def hybrid_state(state: DraftState) -> HybridState:
    """Narrow a state to this module's.

    Raises:
        TypeError: it belongs to another drafter.
    """
    if not isinstance(state, HybridState):
        raise TypeError("the state belongs to another drafter")
    return state
