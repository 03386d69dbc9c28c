"""The rows of one pass: a flat, ragged list of token positions, session after session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch

from outrider.kernels.tensors import index_range, token_ids

#: Tokens of one cache page. Prefix reuse and page tables count in these.
PAGE_TOKENS: Final = 32


@dataclass(frozen=True)
class RowGroup:
    """Consecutive rows of one session.

    Attributes:
        start: absolute position of the first row; also the number of committed rows below it.
        count: rows in this pass, at positions start .. start + count - 1.
        pages: page ids; token position p lives in page ``pages[p // PAGE_TOKENS]``. A copy: a page
            table goes on growing and shrinking after the group was made of it.
        floor: lowest position whose cached row may be read (0, unless a drafter started cold).
    """

    start: int
    count: int
    pages: Sequence[int]
    floor: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pages", tuple(self.pages))


@dataclass(frozen=True)
class Rows:
    """All rows of one pass, in group order."""

    groups: tuple[RowGroup, ...]

    @cached_property
    def count(self) -> int:
        """Rows in the pass."""
        return sum(group.count for group in self.groups)

    @cached_property
    def positions(self) -> torch.Tensor:
        """Absolute positions, int64 [n]."""
        return torch.cat([index_range(g.start, g.start + g.count) for g in self.groups])

    @cached_property
    def slots(self) -> torch.Tensor:
        """Cache slot of every row, int64 [n]: page id times PAGE_TOKENS plus offset."""
        return torch.cat([page_slots(g.pages, g.start, g.start + g.count) for g in self.groups])


def page_slots(pages: Sequence[int], start: int, end: int) -> torch.Tensor:
    """Cache slots of positions start .. end - 1 under a page table, int64 [end - start]."""
    positions = index_range(start, end)
    table = token_ids(list(pages))
    return table[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
