"""The scheduler alone, over fake jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.scheduler.scheduler import Limits, Scheduler

PAGE = 4


@dataclass(eq=False)
class FakeJob:
    pool: FakePool
    total: int
    target: int
    done: int = 0
    draftable: int = 0
    restarts: int = 0

    @property
    def pending(self) -> int:
        return self.total - self.done

    @property
    def pages_held(self) -> int:
        return -(-self.done // PAGE)

    def pages_needed(self, rows: int) -> int:
        return -(-(self.done + rows) // PAGE) - self.pages_held

    def restart(self) -> None:
        self.done = 0
        self.restarts += 1

    def feed(self, rows: int) -> None:
        self.done += rows
        if self.done == self.total:
            self.total += 1


@dataclass
class FakePool:
    pages: int
    jobs: list[FakeJob] = field(default_factory=list)

    def free(self) -> int:
        return self.pages - sum(job.pages_held for job in self.jobs)


def drive(pool: FakePool, scheduler: Scheduler[FakeJob], limits: Limits) -> list[FakeJob]:
    """Run to the end; return jobs in the order they finished."""
    finished: list[FakeJob] = []
    for _ in range(10_000):
        slots = scheduler.plan()
        if not slots:
            break
        assert len(slots) <= limits.max_num_seqs
        assert sum(s.feed for s in slots if s.job.pending > 1) <= limits.max_prefill_rows
        need = sum(s.job.pages_needed(s.feed + s.draft_length) for s in slots)
        assert need <= pool.free()
        for slot in slots:
            slot.job.feed(slot.feed)
        ended = [slot.job for slot in slots if slot.job.total >= slot.job.target]
        for job in ended:
            pool.jobs.remove(job)
        scheduler.settle(ended)
        finished.extend(ended)
    return finished


def make(pages: int, limits: Limits, shapes: list[tuple[int, int]]) -> tuple[FakePool, Scheduler]:
    pool = FakePool(pages)
    scheduler: Scheduler[FakeJob] = Scheduler(limits, pool.free)
    for prompt, target in shapes:
        job = FakeJob(pool, prompt, target)
        pool.jobs.append(job)
        scheduler.add(job)
    return pool, scheduler


def test_first_come_first_served_without_pressure() -> None:
    limits = Limits(max_num_seqs=2, max_prefill_rows=8, draft_length=0)
    pool, scheduler = make(100, limits, [(5, 10)] * 5)
    order = list(pool.jobs)
    assert drive(pool, scheduler, limits) == order
    assert scheduler.preemptions == 0


def test_everyone_finishes_under_page_pressure() -> None:
    limits = Limits(max_num_seqs=4, max_prefill_rows=6, draft_length=3)
    pool, scheduler = make(7, limits, [(9, 24), (3, 24), (12, 26), (1, 20), (20, 25)])
    order = list(pool.jobs)
    finished = drive(pool, scheduler, limits)
    assert len(finished) == 5
    assert finished[0] is order[0], "the oldest job is never displaced"
    assert order[0].restarts == 0
    assert scheduler.preemptions > 0


def test_queued_jobs_give_their_pages_back_when_the_oldest_needs_them() -> None:
    limits = Limits(max_num_seqs=1, max_prefill_rows=8, draft_length=0)
    pool, scheduler = make(5, limits, [(4, 19), (4, 10)])
    pool.jobs[1].done = 3
    assert len(drive(pool, scheduler, limits)) == 2


def test_drafts_shrink_before_anyone_is_displaced() -> None:
    limits = Limits(max_num_seqs=2, max_prefill_rows=8, draft_length=9)
    pool, scheduler = make(2, limits, [(4, 7)])
    job = pool.jobs[0]
    scheduler.plan()
    job.feed(4)
    job.draftable = 9
    slot = scheduler.plan()[0]
    assert slot.draft_length == 3
    assert scheduler.preemptions == 0
