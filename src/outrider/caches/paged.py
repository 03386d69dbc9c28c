"""One session's rows in a page pool: the target's keys and values, or a drafter's context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from outrider.caches.pool import PagePool
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import PAGE_TOKENS, RowGroup
from outrider.types.errors import InvariantError


def pages_for(tokens: int) -> int:
    """Pages that hold ``tokens`` rows."""
    return -(-tokens // PAGE_TOKENS)


def clear_below(pages: Sequence[int], floor: int, store: PageStore) -> None:
    """Zero the rows of ``pages`` below position ``floor``.

    An implementation may read masked rows and multiply them by zero, which needs them to be finite.
    """
    for page in pages[: floor // PAGE_TOKENS]:
        store.clear_page(page, PAGE_TOKENS)
    if floor % PAGE_TOKENS:
        store.clear_page(pages[floor // PAGE_TOKENS], floor % PAGE_TOKENS)


@dataclass(frozen=True)
class PagesCopy:
    """Cached rows that outlive their pages.

    Attributes:
        base: position of the first row, a multiple of PAGE_TOKENS.
        upto: position after the last row.
        pages: contents of the pages from ``base`` on, as the store copied them.
    """

    base: int
    upto: int
    pages: tuple[tuple[Tensor, ...], ...]


class PagedCache:
    """Append-only rows with two-phase growth.

    ``stage(n)`` makes rows [length, length + n) writable and ``commit(m)`` keeps the first m of
    them. Between rounds nothing is staged, so ``length`` is exactly what was committed. Rows at or
    past ``length`` are never read: every operator bounds its reads by position.

    Attributes:
        length: committed rows.
        floor: lowest position that holds a row; rows below it were never written.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._pages: list[int] = []
        self.length = 0
        self.floor = 0
        self._staged = 0

    @property
    def pages(self) -> list[int]:
        """Page ids in position order; those wholly below the floor are held all the same."""
        return self._pages

    def pages_needed(self, count: int) -> int:
        """Pages that ``stage(count)`` would take from the pool."""
        fresh = pages_for(self.length + count) - len(self._pages)
        return max(fresh, 0) + int(count > 0 and self._writes_shared_page())

    def stage(self, count: int) -> RowGroup:
        """Make ``count`` rows after the committed ones writable.

        Returns:
            The rows, for the operators that write and read them.

        Raises:
            OutOfPages: the pool is too small; nothing has changed.
            BaseException: whatever else; ``roll_back``, and the pool's ``recount``, undo it.
        """
        self._check_nothing_staged()
        fresh = self._pool.take(self.pages_needed(count))
        if count and self._writes_shared_page():
            last = self.length // PAGE_TOKENS
            self._pool.store.copy_page(self._pages[last], fresh[-1])
            self._pool.release(self._pages[last])
            self._pages[last] = fresh.pop()
        self._pages.extend(fresh)
        self._staged = count
        return RowGroup(self.length, count, self._pages, self.floor)

    def commit(self, count: int) -> None:
        """Keep the first ``count`` staged rows and forget the rest, returning their pages."""
        if not 0 <= count <= self._staged:
            raise InvariantError(f"{count} of {self._staged} staged rows cannot be committed")
        self.length += count
        self._staged = 0
        self._trim()

    def roll_back(self, length: int) -> None:
        """Forget whatever a round staged or committed past ``length``, its length before it.

        The pool's counts may be torn: only the page table is set back, and whoever calls this has
        the pool count anew.
        """
        self._staged = 0
        self.length = min(self.length, length)
        self.floor = min(self.floor, self.length)
        del self._pages[pages_for(self.length) :]

    def truncate(self, length: int) -> None:
        """Forget committed rows at and after ``length``."""
        self._check_nothing_staged()
        self._check_held(length, self.length)
        self.length = length
        self._trim()

    def fork(self) -> PagedCache:
        """Return a cache with the same rows. Pages are shared; the first to write copies."""
        self._check_nothing_staged()
        twin = PagedCache(self._pool)
        twin._pages = list(self._pages)
        twin.length, twin.floor = self.length, self.floor
        for page in twin._pages:
            self._pool.share(page)
        return twin

    def release(self) -> None:
        """Return every page. The cache is empty afterwards."""
        for page in self._pages:
            self._pool.release(page)
        self._pages = []
        self.length = self.floor = self._staged = 0

    def export(self, base: int, upto: int) -> PagesCopy:
        """Copy out rows [base, upto), widened down to a page boundary.

        Raises:
            InvariantError: a row of the range is not committed here.
        """
        self._check_held(base, upto)
        first = base // PAGE_TOKENS
        pages = self._pages[first : pages_for(upto)]
        copies = tuple(self._pool.store.read_page(page) for page in pages)
        return PagesCopy(max(first * PAGE_TOKENS, self.floor), upto, copies)

    def adopt(self, copy: PagesCopy) -> None:
        """Fill an empty cache with exported rows at the positions they came from.

        Rows below ``copy.base`` do not exist: the floor keeps every reader above them, and they are
        zeroed.

        Raises:
            OutOfPages: the pool is too small; the cache stays empty.
        """
        if self._pages:
            raise InvariantError("only an empty cache can adopt rows")
        self._pages = self._pool.take(pages_for(copy.upto))
        first = copy.base // PAGE_TOKENS
        for page, contents in zip(self._pages[first:], copy.pages, strict=True):
            self._pool.store.write_page(page, contents)
        clear_below(self._pages, copy.base, self._pool.store)
        self.length, self.floor = copy.upto, copy.base

    def audit(self, expected_length: int) -> None:
        """Check the round-boundary invariant.

        Raises:
            InvariantError: rows are staged, the length is off, or pages do not match it.
        """
        self._check_nothing_staged()
        if self.length != expected_length:
            raise InvariantError(f"{self.length} rows, {expected_length} committed")
        if len(self._pages) != pages_for(self.length):
            raise InvariantError("pages do not match the length")

    def _check_nothing_staged(self) -> None:
        if self._staged:
            raise InvariantError(f"{self._staged} rows are staged already, or still")

    def _check_held(self, first: int, upto: int) -> None:
        if not self.floor <= first <= upto <= self.length:
            raise InvariantError(f"[{first}, {upto}) is not in the cache")

    def _writes_shared_page(self) -> bool:
        last = self.length // PAGE_TOKENS
        return last < len(self._pages) and self._pool.is_shared(self._pages[last])

    def _trim(self) -> None:
        keep = pages_for(self.length)
        for page in self._pages[keep:]:
            self._pool.release(page)
        del self._pages[keep:]
