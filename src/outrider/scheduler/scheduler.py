"""First come, first served: admission, chunked prefill, draft lengths and preemption."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Job(Protocol):
    """What the scheduler knows of a session."""

    @property
    def pending(self) -> int:
        """Decided tokens to feed; 1 while decoding."""

    @property
    def draftable(self) -> int:
        """Most draft tokens that could be of use."""

    @property
    def pages_held(self) -> int:
        """Pages in its table, shared ones included."""

    def pages_needed(self, rows: int) -> int:
        """Pages that feeding ``rows`` rows would take."""

    def restart(self) -> None:
        """Return every page; the job starts over from its tokens."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Slot(Generic[J]):
    """One job's share of a round: tokens to feed and the most to draft."""

    job: J
    feed: int
    draft_length: int


@dataclass(frozen=True)
class Limits:
    """Bounds of one round.

    Attributes:
        max_num_seqs: jobs that share a round.
        max_prefill_rows: rows that prompts may fill in a round.
        draft_length: most tokens to draft per job.
    """

    max_num_seqs: int
    max_prefill_rows: int
    draft_length: int


class Scheduler(Generic[J]):
    """Orders jobs by arrival.

    A job that cannot have its pages displaces the youngest running one, which gives its pages back
    and waits at the front of the queue. Its tokens are kept, and feeding them again gives the same
    rows bit for bit, so a preempted request cannot tell.

    Attributes:
        preemptions: jobs displaced so far.
    """

    def __init__(self, limits: Limits, free_pages: Callable[[], int]) -> None:
        self._limits = limits
        self._free_pages = free_pages
        self._waiting: deque[J] = deque()
        self._running: list[J] = []
        self.preemptions = 0

    @property
    def waiting(self) -> tuple[J, ...]:
        """Jobs not yet admitted, first come first."""
        return tuple(self._waiting)

    @property
    def running(self) -> tuple[J, ...]:
        """Admitted jobs, oldest first."""
        return tuple(self._running)

    def add(self, job: J) -> None:
        """Queue a job."""
        self._waiting.append(job)

    def remove(self, job: J) -> None:
        """Forget a job wherever it is."""
        if job in self._running:
            self._running.remove(job)
        elif job in self._waiting:
            self._waiting.remove(job)

    def settle(self, finished: Iterable[J]) -> None:
        """Forget finished jobs."""
        for job in finished:
            self.remove(job)

    def plan(self) -> list[Slot[J]]:
        """Choose the jobs and rows of the next round, oldest job first.

        Empty only if nothing is queued.
        """
        budget = self._limits.max_prefill_rows
        slots: list[Slot[J]] = []
        index = 0
        while index < len(self._running):
            job = self._running[index]
            if job.pending > 1 and budget == 0:
                index += 1
                continue
            slot = self._slot(job, budget, self._unreserved(slots))
            if slot is None and self._reclaim(index):
                continue
            if slot is not None:
                slots.append(slot)
                budget -= slot.feed if job.pending > 1 else 0
            index += 1
        self._admit(slots, budget)
        return slots

    def _admit(self, slots: list[Slot[J]], budget: int) -> None:
        """Start waiting jobs in order while there are seats, rows, and pages for all they feed."""
        while self._waiting and len(self._running) < self._limits.max_num_seqs and budget > 0:
            job = self._waiting[0]
            while job.pages_needed(job.pending) > self._unreserved(slots):
                if self._running or not self._reclaim(0):
                    return
            slot = self._slot(job, budget, self._unreserved(slots))
            if slot is None:
                return
            self._running.append(self._waiting.popleft())
            slots.append(slot)
            budget -= slot.feed

    def _slot(self, job: J, budget: int, free: int) -> Slot[J] | None:
        """The job's rows for this round, or None if it cannot have its pages or its turn."""
        if job.pending > 1:
            feed = min(job.pending, budget)
            return Slot(job, feed, 0) if feed and job.pages_needed(feed) <= free else None
        draft = min(job.draftable, self._limits.draft_length)
        while draft and job.pages_needed(1 + draft) > free:
            draft -= 1
        return Slot(job, 1, draft) if job.pages_needed(1 + draft) <= free else None

    def _unreserved(self, slots: list[Slot[J]]) -> int:
        """Free pages that this round's slots do not take."""
        taken = sum(slot.job.pages_needed(slot.feed + slot.draft_length) for slot in slots)
        return self._free_pages() - taken

    def _reclaim(self, index: int) -> bool:
        """Take pages back for the running job at ``index`` from the youngest job after it.

        Queued jobs come first: a queued completion may hold pages of the prompt it shares. With
        nobody running, the first queued job is the one that needs pages, and keeps its own.

        Returns:
            False if no younger job holds a page.
        """
        needy = None if self._running else self._waiting[0]
        for job in reversed(self._waiting):
            if job.pages_held and job is not needy:
                job.restart()
                return True
        if index + 1 >= len(self._running):
            return False
        youngest = self._running.pop()
        youngest.restart()
        self._waiting.appendleft(youngest)
        self.preemptions += 1
        return True
