"""Prompt lookup: copy what followed the last occurrence of the current suffix."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

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
from outrider.drafters.ngram.state import NgramState, ngram_state
from outrider.drafters.ngram.suffix_index import SuffixIndex


@dataclass(frozen=True)
class NgramTail(Tail):
    """The tokens below a published position.

    Attributes:
        upto: position after the last token.
        base: position of the first token.
        tokens: the tokens.
    """

    upto: int
    base: int
    tokens: array[int]

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens."""
        return len(self.tokens) * self.tokens.itemsize


@dataclass(frozen=True)
class NgramOptions:
    """What the n-gram drafter looks for.

    Attributes:
        shortest: least tokens that must match, the tip included.
        longest: most tokens compared; a longer match counts as this long.
        window: how many tokens back a match may lie.
        max_draft: most tokens to propose.
    """

    shortest: int = 1
    longest: int = 8
    window: int = 1 << 20
    max_draft: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(f"shortest {self.shortest} must be in 1..longest ({self.longest})")
        if self.window < 1 or self.max_draft < 1:
            raise ValueError(f"window {self.window}, max_draft {self.max_draft}: at least 1 each")


class NgramDrafter(Drafter):
    """Proposes the continuation of the longest, then most recent, earlier match of the suffix.

    The longer the match, the more of its continuation is proposed.
    """

    def __init__(self, options: NgramOptions | None = None) -> None:
        """Use ``options``, or the defaults."""
        self.options = NgramOptions() if options is None else options
        self.name = "ngram"
        self.max_draft = self.options.max_draft

    def begin(self, sampling: DraftSampling) -> NgramState:
        """Return an empty state; the copied tokens do not depend on ``sampling``."""
        return NgramState(SuffixIndex(self.options.shortest, self.options.longest))

    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        """Append the rows' tokens to each state's index.

        Rows that do not continue where the state ends start the text anew at their position; the
        next proposal reports it.
        """
        for state, new in zip(states, rows, strict=True):
            mine = ngram_state(state)
            if not new.tokens:
                continue
            if new.start != mine.length:
                mine.fault = f"rows at {new.start} do not continue the {mine.length} observed"
                mine.release()
                mine.base = new.start
            for token in new.tokens:
                mine.append(token)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        """Copy what followed the match of each session's suffix; nothing without a match.

        Copies cost a few table look-ups: their budget may be 0.
        """
        return [self._propose_one(ngram_state(r.state), r.tip, r.most) for r in requests]

    def match_length(self, state: DraftState, tip: int) -> int:
        """Tokens of the suffix, ``tip`` included, that the best earlier match shares."""
        return ngram_state(state).index.find(tip, self.options.window)[1]

    def _propose_one(self, state: NgramState, tip: int, most: int) -> Proposal | DrafterFault:
        if state.fault is not None:
            fault, state.fault = DrafterFault(state.fault), None
            return fault
        end, matched = state.index.find(tip, self.options.window)
        if not matched:
            return Proposal()
        # A match that went on in two ways says no more than one that is a token shorter.
        effective = matched - int(state.index.is_ambiguous(end, matched, tip))
        count = min(most, self.max_draft, copy_limit(effective))
        tokens = continuation(state.index.tokens, tip, end, count)
        confidences = state.proposed(state.length + 1, effective, tokens)
        return Proposal(tokens, None, confidences, copied=True)

    def export_tail(self, state: DraftState, upto: int) -> NgramTail | None:
        """Copy the tokens below ``upto``; None if the state does not reach that far."""
        mine = ngram_state(state)
        if not mine.base < upto <= mine.length:
            return None
        return NgramTail(upto, mine.base, mine.index.tokens[: upto - mine.base])

    def restore(self, tail: Tail, sampling: DraftSampling) -> NgramState | None:
        """Rebuild the index from a tail of this kind."""
        if not isinstance(tail, NgramTail):
            return None
        state = self.begin(sampling)
        state.base = tail.base
        for token in tail.tokens:
            state.index.append(token)
        return state


def copy_limit(matched: int) -> int:
    """Most tokens that a match of ``matched`` tokens is worth: 1, 3, 7, 15, ...

    A short match says little about what follows, and every drafted token costs a row.
    """
    return (1 << matched) - 1


def continuation(tokens: array[int], tip: int, start: int, count: int) -> list[int]:
    """Return ``count`` tokens from index ``start`` on of the text, ``tip`` and what is drafted.

    The copy may run past the tip: it then goes on with the tokens drafted before, which continues
    a repeating text with its own period.
    """
    drafted: list[int] = []
    for index in range(start, start + count):
        past = index - len(tokens)
        drafted.append(tokens[index] if past < 0 else drafted[past - 1] if past else tip)
    return drafted
