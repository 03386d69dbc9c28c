"""One session's rows in a paged context."""

from __future__ import annotations

from outrider.caches.paged import PagedCache, clear_below
from outrider.drafters.base import DraftSampling, DraftState
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import RowGroup


class ContextState(DraftState):
    """One session's context rows.

    Rows are readable from the cache's floor on. A session whose earlier rows cannot be used (their
    taps were never computed, or were not finite) starts cold: the floor moves up to where
    observation resumes, and nothing below it is ever read.

    Attributes:
        cache: the context keys and values.
        sampling: how the session's target draws.
    """

    def __init__(self, cache: PagedCache, sampling: DraftSampling) -> None:
        self.cache = cache
        self.sampling = sampling
        self._fault: str | None = None

    @property
    def length(self) -> int:
        """Committed rows observed so far, readable or not."""
        return self.cache.length

    def truncate(self, length: int) -> None:
        """Forget rows at and after ``length``; below the floor nothing is left."""
        if length < self.cache.floor:
            self.skip_to(length)
        else:
            self.cache.truncate(length)

    def roll_back(self, length: int) -> None:
        """Return to ``length`` rows; a page table alone is set back, not the pool's counts."""
        self.cache.roll_back(length)

    def fork(self, sampling: DraftSampling | None = None) -> ContextState:
        """Return an independent state; pages are shared until one of the two writes."""
        return ContextState(self.cache.fork(), sampling or self.sampling)

    def release(self) -> None:
        """Return every page."""
        self.cache.release()

    def skip_to(self, length: int) -> None:
        """Drop every row and go on at position ``length``."""
        self.cache.release()
        # An empty cache whose floor is its length: the next ``stage`` takes pages from here on, and
        # no reader goes below.
        self.cache.length = self.cache.floor = length

    def stage(self, count: int, store: PageStore) -> RowGroup:
        """Stage rows; the pages of a state that starts cold are cleared below its floor.

        An implementation may read masked rows and multiply them by zero, which needs them to be
        finite.
        """
        fresh = not self.cache.pages
        group = self.cache.stage(count)
        if fresh:
            clear_below(group.pages, group.floor, store)
        return group

    def fail(self, reason: str, length: int) -> None:
        """Record a fault, and start cold at ``length``."""
        self._fault = reason
        self.skip_to(length)

    def take_fault(self) -> str | None:
        """Return the fault recorded since the last call, if any, and clear it."""
        fault, self._fault = self._fault, None
        return fault


def context_state(state: DraftState) -> ContextState:
    """Narrow a state to this module's.

    Raises:
        TypeError: it belongs to another drafter.
    """
    if not isinstance(state, ContextState):
        raise TypeError("the state belongs to another drafter")
    return state
