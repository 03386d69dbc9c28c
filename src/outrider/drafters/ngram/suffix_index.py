"""Where each n-gram of a text last ended."""

from __future__ import annotations

from array import array
from typing import Final

#: Bits of one token inside a packed key; every token id is below 2^32.
TOKEN_BITS: Final = 32


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
