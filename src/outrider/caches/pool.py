"""Reference-counted pages over one page store."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.kernels.handles import PageStore
from outrider.types.errors import InvariantError


class OutOfPages(Exception):  # noqa: N818 - a condition the scheduler handles, not an error
    """The pool has fewer free pages than a request needs."""


class PagePool:
    """Hands out the pages of one store and counts who holds each.

    Invariant: a page is free exactly when its count is zero; free pages plus held pages are all
    pages. Whoever writes to a page must be its only holder.
    """

    def __init__(self, store: PageStore) -> None:
        self.store = store
        self._holders = [0] * store.pages
        self._free = list(range(store.pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Pages that somebody holds."""
        return self.store.pages - len(self._free)

    def take(self, count: int) -> list[int]:
        """Take ``count`` free pages, all or none.

        Raises:
            OutOfPages: fewer are free.
        """
        if count > len(self._free):
            raise OutOfPages
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def share(self, page: int) -> None:
        """Add a holder to a held page."""
        if self._holders[page] <= 0:
            raise InvariantError(f"page {page} is free")
        self._holders[page] += 1

    def release(self, page: int) -> None:
        """Drop one holder; the last one frees the page."""
        if self._holders[page] <= 0:
            raise InvariantError(f"page {page} is already free")
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)

    def recount(self, tables: Sequence[Sequence[int]]) -> None:
        """Count anew from all page tables that exist, after a fault in the middle of a change.

        The tables are right whatever was interrupted: a page that none of them names is free.
        """
        self._holders = holders = self._counted(tables)
        self._free = [page for page in range(len(holders) - 1, -1, -1) if not holders[page]]

    def _counted(self, tables: Sequence[Sequence[int]]) -> list[int]:
        """How many of the tables hold each page."""
        counts = [0] * self.store.pages
        for table in tables:
            for page in table:
                counts[page] += 1
        return counts

    def is_shared(self, page: int) -> bool:
        """Whether more than one holder has the page."""
        return self._holders[page] > 1

    def audit(self, tables: list[list[int]]) -> None:
        """Check the counts against all page tables that exist.

        Raises:
            InvariantError: a count differs, or a page is both free and held.
        """
        expected = self._counted(tables)
        if expected != self._holders:
            raise InvariantError("page counts differ from the page tables")
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("a page is free twice")
        if any((page in free) != (count == 0) for page, count in enumerate(expected)):
            raise InvariantError("a page is both free and held, or neither")
