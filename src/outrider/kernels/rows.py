"""The rows of one pass: a flat, ragged list of token positions, session after session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch

from outrider.kernels.tensors import CPU, index_range, token_ids

#: Tokens of one cache page. Prefix reuse and page tables count in these.
PAGE_TOKENS: Final = 32


@dataclass(frozen=True)
class RowGroup:
    """Consecutive rows of one session.

    Attributes:
        start: absolute position of the first row; also the number of committed rows below it.
        count: rows in this pass, at positions start .. start + count - 1.
        pages: page ids; token position p lives in page ``pages[p // PAGE_TOKENS]``.
        floor: lowest position whose cached row may be read (0, unless a drafter started cold).
    """

    start: int
    count: int
    pages: Sequence[int]
    floor: int = 0


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

    @cached_property
    def offsets(self) -> torch.Tensor:
        """First row of every group and the total, int32 [groups + 1]."""
        counts = _int32([0, *(g.count for g in self.groups)])
        return counts.cumsum(0, dtype=torch.int32)

    @cached_property
    def starts(self) -> torch.Tensor:
        """First position of every group, int32 [groups]."""
        return _int32([g.start for g in self.groups])

    @cached_property
    def floors(self) -> torch.Tensor:
        """Lowest readable position of every group, int32 [groups]."""
        return _int32([g.floor for g in self.groups])

    @cached_property
    def tables(self) -> torch.Tensor:
        """Page ids, int32 [groups, most pages], padded with -1."""
        width = max(1, *(len(g.pages) for g in self.groups))
        table = torch.full((len(self.groups), width), -1, dtype=torch.int32, device=CPU)
        for line, group in zip(table, self.groups, strict=True):
            line[: len(group.pages)] = _int32(group.pages)
        return table


def _int32(values: Sequence[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=CPU)


def page_slots(pages: Sequence[int], start: int, end: int) -> torch.Tensor:
    """Cache slots of positions start .. end - 1 under a page table, int64 [end - start]."""
    positions = index_range(start, end)
    table = token_ids(list(pages))
    return table[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
