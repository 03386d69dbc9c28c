"""Context rows that outlive their session, and what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from outrider.caches.paged import PagesCopy
from outrider.drafters.base import Tail


@dataclass(frozen=True)
class ContextTail(Tail):
    """Exported context rows.

    Attributes:
        upto: position after the last row.
        rows: the rows.
        shape: which drafter they belong to; another one refuses them.
        extra: what else the drafter carries across the boundary, float32 [H] or None.
    """

    upto: int
    rows: PagesCopy
    shape: tuple[str | int | None, ...]
    extra: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        tensors = [tensor for page in self.rows.pages for tensor in page]
        if self.extra is not None:
            tensors.append(self.extra)
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class TailCounts:
    """What became of tails.

    Attributes:
        exported: tails handed out.
        restored: tails taken back.
        refused: tails refused, by reason.
    """

    exported: int = 0
    restored: int = 0
    refused: Counter[str] = field(default_factory=Counter)
