"""The scheduler alone, over fake jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.scheduler.limits import Limits
from outrider.scheduler.scheduler import Scheduler

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
        assert sum(s.rows for s in slots) <= limits.max_num_batched_tokens
        assert all(s.feed >= 1 for s in slots)
        need = sum(s.job.pages_needed(s.rows) for s in slots)
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
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=8, draft_length=0)
    pool, scheduler = make(100, limits, [(5, 10)] * 5)
    order = list(pool.jobs)
    assert drive(pool, scheduler, limits) == order
    assert scheduler.preemptions == 0


def test_everyone_finishes_under_page_pressure() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=6, draft_length=3)
    pool, scheduler = make(7, limits, [(9, 24), (3, 24), (12, 26), (1, 20), (20, 25)])
    order = list(pool.jobs)
    finished = drive(pool, scheduler, limits)
    assert len(finished) == 5
    assert finished[0] is order[0], "the oldest job is never displaced"
    assert order[0].restarts == 0
    assert scheduler.preemptions > 0


def test_queued_jobs_give_their_pages_back_when_the_oldest_needs_them() -> None:
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=8, draft_length=0)
    pool, scheduler = make(5, limits, [(4, 19), (4, 10)])
    pool.jobs[1].done = 3
    assert len(drive(pool, scheduler, limits)) == 2


def test_drafts_shrink_before_anyone_is_displaced() -> None:
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=8, draft_length=9)
    pool, scheduler = make(2, limits, [(4, 7)])
    job = pool.jobs[0]
    scheduler.plan()
    job.feed(4)
    job.draftable = 9
    slot = scheduler.plan()[0]
    assert slot.draft_length == 3
    assert scheduler.preemptions == 0


def planned(scheduler: Scheduler[FakeJob]) -> list[tuple[FakeJob, int, int]]:
    return [(slot.job, slot.feed, slot.draft_length) for slot in scheduler.plan()]


def running(limits: Limits, shapes: list[tuple[int, int]], pages: int = 1000) -> Scheduler[FakeJob]:
    """All jobs admitted, by feeding their prompts whole."""
    pool, scheduler = make(pages, limits, shapes)
    while scheduler.waiting or any(job.pending > 1 for job in pool.jobs):
        for slot in scheduler.plan():
            slot.job.feed(slot.feed)
    assert all(job.pending == 1 for job in pool.jobs)
    return scheduler


def test_decoding_and_drafted_rows_count() -> None:
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=12, draft_length=9)
    scheduler = running(limits, [(2, 99), (3, 99)])
    older, younger = scheduler.running
    older.draftable, younger.draftable = 9, 2
    assert planned(scheduler) == [(older, 1, 8), (younger, 1, 2)], "12 rows"
    newcomer = FakeJob(older.pool, 30, 99)
    older.pool.jobs.append(newcomer)
    scheduler.add(newcomer)
    assert planned(scheduler) == [(older, 1, 3), (younger, 1, 2), (newcomer, 5, 0)]
    newcomer.feed(5)
    older.draftable = younger.draftable = 0
    assert planned(scheduler) == [(older, 1, 0), (younger, 1, 0), (newcomer, 10, 0)]


def test_every_job_in_flight_has_its_row_when_no_more_fit() -> None:
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=3, draft_length=9)
    scheduler = running(limits, [(2, 99), (9, 99), (9, 99)])
    for job in scheduler.running:
        job.draftable = 9
    assert planned(scheduler) == [(job, 1, 0) for job in scheduler.running]


def test_fewer_rows_than_jobs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows for 3 jobs"):
        Limits(max_num_seqs=3, max_num_batched_tokens=2, draft_length=0)


SHAPES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 8)), min_size=1, max_size=8)


@given(SHAPES, st.integers(1, 4), st.integers(0, 30), st.integers(0, 9), st.integers(8, 30))
def test_everybody_finishes_whatever_the_limits(
    shapes: list[tuple[int, int]], seats: int, spare: int, draft: int, pages: int
) -> None:
    limits = Limits(seats, seats + spare, draft)
    pool, scheduler = make(pages, limits, [(prompt, prompt + more) for prompt, more in shapes])
    for job in pool.jobs:
        job.draftable = 5
    assert len(drive(pool, scheduler, limits)) == len(shapes)


def test_a_preempted_job_keeps_its_place() -> None:
    """It waits before everybody who came after it, and is the next to start."""
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=8, draft_length=0)
    pool, scheduler = make(3, limits, [(4, 40), (4, 40), (1, 40)])
    first, second, third = pool.jobs
    for slot in scheduler.plan():
        slot.job.feed(slot.feed)
    assert scheduler.running == (first, second)
    first.feed(4)
    while scheduler.preemptions == 0:
        for slot in scheduler.plan():
            slot.job.feed(slot.feed)
    assert scheduler.running == (first,)
    assert scheduler.waiting == (second, third)
    assert second.restarts == 1
    pool.jobs.remove(first)
    scheduler.settle([first])
    assert [slot.job for slot in scheduler.plan()] == [second, third]


def test_no_job_is_started_without_pages_for_all_that_it_feeds() -> None:
    """Started with a part of them, it would be displaced before its first token."""
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=4, draft_length=0)
    pool, scheduler = make(4, limits, [(4, 40), (13, 40)])
    first, second = pool.jobs
    assert planned(scheduler) == [(first, 4, 0)]
    first.feed(4)
    assert planned(scheduler) == [(first, 1, 0)], "3 pages are free, and 4 are needed"
    assert scheduler.waiting == (second,)


def test_the_pages_of_a_round_are_reserved_job_by_job() -> None:
    """Two drafts that would each fit alone share what is free."""
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=40, draft_length=9)
    scheduler = running(limits, [(4, 99), (4, 99)], pages=6)
    older, younger = scheduler.running
    older.draftable = younger.draftable = 9
    assert planned(scheduler) == [(older, 1, 9), (younger, 1, 3)]
    assert scheduler.preemptions == 0


def test_the_youngest_pays_and_a_queued_sibling_before_it() -> None:
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=40, draft_length=0)
    scheduler = running(limits, [(4, 99), (4, 99), (4, 99)], pages=5)
    oldest, middle, youngest = scheduler.running
    sibling = FakeJob(oldest.pool, 5, 99, done=4)
    oldest.pool.jobs.append(sibling)
    scheduler.add(sibling)
    assert planned(scheduler) == [(oldest, 1, 0), (middle, 1, 0)], "the youngest sits it out"
    assert sibling.restarts == 1
    assert (oldest.restarts, middle.restarts, youngest.restarts) == (0, 0, 0)
    oldest.done, oldest.total, middle.done, middle.total = 8, 9, 5, 6
    assert planned(scheduler) == [(oldest, 1, 0), (middle, 1, 0)]
    assert (oldest.restarts, middle.restarts, youngest.restarts) == (0, 0, 1)
    assert scheduler.waiting == (youngest, sibling)
    assert scheduler.preemptions == 1


def test_the_last_in_the_queue_gives_its_pages_back_first() -> None:
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=40, draft_length=0)
    scheduler = running(limits, [(4, 99)], pages=3)
    (oldest,) = scheduler.running
    before, behind = (FakeJob(oldest.pool, 5, 99, done=4) for _ in range(2))
    for sibling in (before, behind):
        oldest.pool.jobs.append(sibling)
        scheduler.add(sibling)
    assert planned(scheduler) == [(oldest, 1, 0)]
    assert (oldest.restarts, before.restarts, behind.restarts) == (0, 0, 1)


def test_a_full_house_has_all_rows_for_its_drafts() -> None:
    """Who waits cannot start without a seat, so nothing is kept for a prompt."""
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=12, draft_length=9)
    scheduler = running(limits, [(2, 99), (3, 99)])
    older, younger = scheduler.running
    older.draftable, younger.draftable = 9, 2
    newcomer = FakeJob(older.pool, 30, 99)
    older.pool.jobs.append(newcomer)
    scheduler.add(newcomer)
    assert planned(scheduler) == [(older, 1, 8), (younger, 1, 2)], "not (older, 1, 3)"
