"""First come, first served: admission, chunked prefill, draft lengths and preemption."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic

from outrider.scheduler.job import J
from outrider.scheduler.limits import Limits
from outrider.scheduler.row_budget import Wish, divide
from outrider.scheduler.slot import Slot


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

        The slots never fill more rows than ``max_num_batched_tokens``. Empty only if nothing is
        queued.
        """
        allotted = self._allotted()
        slots: list[Slot[J]] = []
        index = 0
        while index < len(self._running):
            slot = self._slot(self._running[index], allotted[index], self._unreserved(slots))
            if slot is None and self._reclaim(index):
                continue
            if slot is not None:
                slots.append(slot)
            index += 1
        self._admit(slots)
        return slots

    def _allotted(self) -> list[int]:
        """Most rows of each running job."""
        wishes = [
            Wish(prompt=job.pending - 1)
            if job.pending > 1
            else Wish(draft=min(job.draftable, self._limits.draft_length))
            for job in self._running
        ]
        waiting = bool(self._waiting) and len(self._running) < self._limits.max_num_seqs
        return divide(self._limits.max_num_batched_tokens, wishes, waiting)

    def _admit(self, slots: list[Slot[J]]) -> None:
        """Start waiting jobs in order while there are seats, rows, and pages for all they feed."""
        left = self._limits.max_num_batched_tokens - sum(slot.rows for slot in slots)
        while self._waiting and len(self._running) < self._limits.max_num_seqs and left > 0:
            job = self._waiting[0]
            while job.pages_needed(job.pending) > self._unreserved(slots):
                if self._running or not self._reclaim(0):
                    return
            slot = self._slot(job, left, self._unreserved(slots))
            if slot is None:
                return
            self._running.append(self._waiting.popleft())
            slots.append(slot)
            left -= slot.rows

    def _slot(self, job: J, rows: int, free: int) -> Slot[J] | None:
        """The job's part of this round, of at most ``rows`` rows; None without its pages."""
        feed = min(job.pending, rows)
        draft = 0
        if job.pending == 1:
            draft = min(job.draftable, self._limits.draft_length, rows - feed)
        while draft and job.pages_needed(feed + draft) > free:
            draft -= 1
        return Slot(job, feed, draft) if job.pages_needed(feed + draft) <= free else None

    def _unreserved(self, slots: list[Slot[J]]) -> int:
        """Free pages that this round's slots do not take."""
        taken = sum(slot.job.pages_needed(slot.rows) for slot in slots)
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
