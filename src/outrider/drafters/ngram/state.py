"""The text of one session as the n-gram drafter keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.drafters.base import DraftSampling, DraftState
from outrider.drafters.ngram.match_statistics import MatchStatistics
from outrider.drafters.ngram.suffix_index import SuffixIndex


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


def ngram_state(state: DraftState) -> NgramState:
    """Narrow a state to this module's.

    Raises:
        TypeError: it belongs to another drafter.
    """
    if not isinstance(state, NgramState):
        raise TypeError("the state belongs to another drafter")
    return state
