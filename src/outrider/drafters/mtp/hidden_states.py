"""The target's hidden states at the newest positions of one session."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from outrider.kernels.rows import PAGE_TOKENS

#: Newest positions that stay readable whatever is appended. A position is published at the end of
#: a page, so it lies less than a page below the newest one.
KEPT_POSITIONS: Final = PAGE_TOKENS


class HiddenStates:
    """Hidden states by position, as far back as anything can still read them.

    A round reads the state before the rows that it observes or drafts; setting a failed round back
    reads the one before the rows of that round; a fork of a prompt the one before the last; a tail
    the one before the published position. So the rows appended last are kept, the state before
    them, and the newest KEPT_POSITIONS; older ones are forgotten, their memory with them.

    Rows are never written to: forks share them.
    """

    def __init__(self) -> None:
        self._start = 0
        self._rows: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the states keep alive."""
        return 0 if self._rows is None else self._rows.untyped_storage().nbytes()

    def append(self, start: int, states: Tensor) -> None:
        """Add copies of states [n, H] of positions from ``start`` on; they replace what was there.

        Without the state before ``start`` nothing older can be gone back to: all is forgotten.
        """
        self.truncate(start)
        kept: list[Tensor] = []
        if self._rows is not None and self.at(start - 1) is not None:
            lowest = min(start - 1, start + len(states) - KEPT_POSITIONS)
            kept = [self._rows[max(lowest - self._start, 0) :]]
        self._start = start - sum(map(len, kept))
        self._rows = torch.cat([*kept, states])  # in memory of its own

    def at(self, position: int) -> Tensor | None:
        """The state of a position, float32 [H], or None if it is not kept."""
        offset = position - self._start
        return self._rows[offset] if self._rows is not None and 0 <= offset < len(self) else None

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def truncate(self, length: int) -> None:
        """Forget states at and after position ``length``."""
        if self._rows is not None:
            self._rows = self._rows[: max(length - self._start, 0)]

    def copy(self) -> HiddenStates:
        """Return independent states, in shared memory."""
        twin = HiddenStates()
        twin._start, twin._rows = self._start, self._rows
        return twin
