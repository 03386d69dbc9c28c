"""Prompt lookup: copy what followed the last occurrence of the current suffix."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
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

#: Bits of one token inside a packed key; every token id is below 2^32.
TOKEN_BITS: Final = 32
#: Accuracy of a copied token after a match of 1, 2, ... tokens, before a text has shown its own. By
#: judgement: a few tokens of evidence outweigh it.
PRIOR_ACCURACY: Final = (0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
#: Tokens of evidence that the prior counts for, and that are remembered at most: texts change.
PRIOR_WEIGHT: Final = 8.0
MOST_EVIDENCE: Final = 60.0


class SuffixIndex:
    """For every n-gram length, where each n-gram of a text last ended.

    A key is the n-gram itself, packed into one integer, so that lookups are exact. Appending a
    token costs one insertion per length and a lookup one probe per length, whatever the length of
    the text. What an insertion overwrites is kept beside the token, so that removal is exact too.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.lengths = range(shortest, longest + 1)
        self.tokens = array("Q")
        self._masks = [(1 << TOKEN_BITS * n) - 1 for n in self.lengths]
        self._ends: list[dict[int, int]] = [{} for _ in self.lengths]
        self._previous = [array("q") for _ in self.lengths]
        self._tables = self._joined()
        self._recent = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def _joined(self) -> list[tuple[int, int, dict[int, int], array[int]]]:
        """Length, mask and tables of every n-gram length, side by side for the loops."""
        return list(zip(self.lengths, self._masks, self._ends, self._previous, strict=True))

    def append(self, token: int) -> None:
        """Add a token to the text."""
        self.tokens.append(token)
        self._recent = (self._recent << TOKEN_BITS | token) & self._masks[-1]
        end = len(self.tokens)
        for n, mask, ends, previous in self._tables:
            key = self._recent & mask
            previous.append(ends.get(key, 0))
            if end >= n:
                ends[key] = end

    def truncate(self, length: int) -> None:
        """Remove tokens until ``length`` are left.

        An addition that was interrupted left tables of different lengths: they are made anew.
        """
        if any(len(previous) != len(self.tokens) for previous in self._previous):
            self._rebuild(self.tokens[:length])
        while len(self.tokens) > length:
            end = len(self.tokens)
            for n, mask, ends, previous in self._tables:
                before = previous.pop()
                if end < n:
                    continue
                if before:
                    ends[self._recent & mask] = before
                else:
                    ends.pop(self._recent & mask, None)
            self.tokens.pop()
            self._recent >>= TOKEN_BITS
            longest = self.lengths[-1]
            if len(self.tokens) >= longest:
                self._recent |= self.tokens[-longest] << TOKEN_BITS * (longest - 1)

    def _rebuild(self, tokens: array[int]) -> None:
        self.tokens, self._recent = array("Q"), 0
        self._ends = [{} for _ in self.lengths]
        self._previous = [array("q") for _ in self.lengths]
        self._tables = self._joined()
        for token in tokens:
            self.append(token)

    def find(self, tip: int, window: int) -> tuple[int, int]:
        """Look up the longest suffix of the text and ``tip`` that also occurs in the text.

        Args:
            tip: the token after the text, not part of it.
            window: how many tokens back an occurrence may end.

        Returns:
            Where its most recent occurrence ended, and its length; (0, 0) without one.
        """
        key = self._recent << TOKEN_BITS | tip
        oldest = len(self.tokens) - window
        for index in range(len(self.lengths) - 1, -1, -1):
            n = self.lengths[index]
            if len(self.tokens) + 1 < n:
                continue
            end = self._ends[index].get(key & self._masks[index], 0)
            if end and end > oldest:
                return end, n
        return 0, 0

    def is_ambiguous(self, end: int, matched: int, tip: int) -> bool:
        """Whether the n-gram that ended at ``end`` went on differently the time before.

        ``tip`` is the token after the text, which may be what the n-gram went on with.
        """
        before = self._previous[matched - self.lengths[0]][end - 1]
        after = self.tokens[end] if end < len(self.tokens) else tip
        return before > 0 and self.tokens[before] != after

    def copy(self) -> SuffixIndex:
        """Return an independent copy."""
        twin = SuffixIndex(self.lengths[0], self.lengths[-1])
        twin.tokens = self.tokens[:]
        twin._ends = [dict(ends) for ends in self._ends]
        twin._previous = [previous[:] for previous in self._previous]
        twin._tables = twin._joined()
        twin._recent = self._recent
        return twin


class MatchStatistics:
    """How often a copied token was right, by the length of the match that led to it.

    A copied token lengthens the match by one, so the i-th token of a copy counts for a match that
    is i longer. Copies are judged by the text that came, whether or not the target saw them.
    """

    def __init__(self, longest: int) -> None:
        self._tried = [0.0] * longest
        self._correct = [0.0] * longest

    def accuracy(self, matched: int) -> float:
        """Estimated chance that a token is right after a match of ``matched`` tokens."""
        at = min(matched, len(self._tried)) - 1
        prior = PRIOR_ACCURACY[min(at, len(PRIOR_ACCURACY) - 1)]
        return (self._correct[at] + PRIOR_WEIGHT * prior) / (self._tried[at] + PRIOR_WEIGHT)

    def record(self, matched: int, correct: bool) -> None:
        """Note whether a token after a match of ``matched`` tokens was right."""
        at = min(matched, len(self._tried)) - 1
        fade = min(1.0, MOST_EVIDENCE / (self._tried[at] + 1.0))
        self._tried[at] = self._tried[at] * fade + 1.0
        self._correct[at] = self._correct[at] * fade + float(correct)

    def copy(self) -> MatchStatistics:
        """Return an independent copy."""
        twin = MatchStatistics(len(self._tried))
        twin._tried, twin._correct = list(self._tried), list(self._correct)
        return twin


@dataclass
class PendingCopy:
    """The last copy proposed, until the text has shown how much of it was right.

    Attributes:
        position: where its next unjudged token belongs.
        matched: length of the match that led to that token.
        tokens: the unjudged tokens.
    """

    position: int
    matched: int
    tokens: list[int]


class NgramState(DraftState):
    """The committed tokens of one session and their index.

    Attributes:
        index: the tokens from position ``base`` on.
        base: position of the first token seen; above 0 only if earlier ones were never observed.
        statistics: how well copies have done in this text.
        fault: why the last observation could not be used, until a proposal reports it.
    """

    def __init__(
        self, index: SuffixIndex, base: int = 0, statistics: MatchStatistics | None = None
    ) -> None:
        self.index = index
        self.base = base
        self.statistics = statistics or MatchStatistics(index.lengths[-1])
        self.fault: str | None = None
        self._pending: PendingCopy | None = None

    def proposed(self, position: int, matched: int, tokens: list[int]) -> list[float]:
        """Note a copy that begins at ``position``; return the chance of each of its tokens."""
        if self._pending is None and tokens:
            self._pending = PendingCopy(position, matched, list(tokens))
        return [self.statistics.accuracy(matched + place) for place in range(len(tokens))]

    def append(self, token: int) -> None:
        """Add the next committed token, and judge the pending copy by it."""
        copy = self._pending
        if copy is not None and copy.position == self.length:
            right = copy.tokens[0] == token
            self.statistics.record(copy.matched, right)
            copy.position, copy.matched = copy.position + 1, copy.matched + 1
            del copy.tokens[0]
            if not right or not copy.tokens:
                self._pending = None
        self.index.append(token)

    @property
    def length(self) -> int:
        """Committed rows observed so far."""
        return self.base + len(self.index)

    def truncate(self, length: int) -> None:
        """Forget tokens at and after position ``length``."""
        if not 0 <= length <= self.length:
            raise ValueError(f"{length} rows of {self.length}")
        self._pending = None
        self.index.truncate(max(length - self.base, 0))
        self.base = min(self.base, length)

    def fork(self, sampling: DraftSampling | None = None) -> NgramState:
        """Return an independent state with the same tokens."""
        return NgramState(self.index.copy(), self.base, self.statistics.copy())

    def release(self) -> None:
        """Forget everything."""
        self._pending = None
        self.index = SuffixIndex(self.index.lengths[0], self.index.lengths[-1])
        self.base = 0


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
            mine = _ngram_state(state)
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
        return [self._propose_one(_ngram_state(r.state), r.tip, r.most) for r in requests]

    def match_length(self, state: DraftState, tip: int) -> int:
        """Tokens of the suffix, ``tip`` included, that the best earlier match shares."""
        return _ngram_state(state).index.find(tip, self.options.window)[1]

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
        mine = _ngram_state(state)
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


def _ngram_state(state: DraftState) -> NgramState:
    if not isinstance(state, NgramState):
        raise TypeError("the state belongs to another drafter")
    return state
