"""Paged caches: random lives, exact contents, no page lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.caches.paged import PagedCache, pages_for
from outrider.caches.pool import OutOfPages, PagePool
from outrider.kernels.reference import ReferenceKernels, ReferenceStore
from outrider.kernels.rows import PAGE_TOKENS, Rows, page_slots

KERNELS = ReferenceKernels()


def make_pool(pages: int = 24) -> PagePool:
    return PagePool(KERNELS.allocate(2, pages, 1, 2, "float32"))


def feed(pool: PagePool, cache: PagedCache, values: list[int], keep: int) -> None:
    """Write a value per row into both layers, keep the first ones."""
    group = cache.stage(len(values))
    rows = Rows((group,))
    content = torch.tensor(values, dtype=torch.float32)[:, None, None].expand(-1, 1, 2)
    for layer in range(2):
        KERNELS.write(pool.store, layer, content + layer, -content, rows)
    cache.commit(keep)


def contents(pool: PagePool, cache: PagedCache) -> list[int]:
    assert isinstance(pool.store, ReferenceStore)
    slots = page_slots(cache.pages, cache.floor, cache.length)
    keys = [(pool.store.k[layer, slots, 0, 0] - layer).tolist() for layer in range(2)]
    assert keys[0] == keys[1] == (-pool.store.v[0, slots, 0, 1]).tolist()
    return [int(value) for value in keys[0]]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["feed", "fork", "cancel", "truncate", "copy"]),
        st.integers(0, 5),
        st.integers(1, 70),
        st.floats(0, 1),
    ),
    max_size=25,
)


Life = tuple[PagedCache, list[int]]


class Lives:
    """Several caches of one pool, each beside the list of rows it must hold."""

    def __init__(self) -> None:
        self.pool = make_pool()
        self.live: list[Life] = []
        self.fresh = 0

    def feed(self, life: Life, count: int, share: float) -> None:
        cache, truth = life
        values = list(range(self.fresh, self.fresh + count))
        self.fresh += count
        keep = round(share * count)
        before = contents(self.pool, cache)
        try:
            feed(self.pool, cache, values, keep)
            truth.extend(values[:keep])
        except OutOfPages:
            assert contents(self.pool, cache) == before

    def fork(self, life: Life, count: int, share: float) -> None:
        self.live.append((life[0].fork(), list(life[1])))

    def cancel(self, life: Life, count: int, share: float) -> None:
        life[0].release()
        self.live.remove(life)

    def truncate(self, life: Life, count: int, share: float) -> None:
        cache, truth = life
        cut = cache.floor + round(share * (cache.length - cache.floor))
        cache.truncate(cut)
        del truth[cut - cache.floor :]

    def copy(self, life: Life, count: int, share: float) -> None:
        cache, truth = life
        if cache.length == cache.floor:
            return
        twin = PagedCache(self.pool)
        try:
            twin.adopt(cache.export(cache.floor, cache.length))
            self.live.append((twin, list(truth)))
        except OutOfPages:
            assert twin.length == 0

    def check(self) -> None:
        for cache, truth in self.live:
            assert contents(self.pool, cache) == truth
            cache.audit(cache.floor + len(truth))
        self.pool.audit([cache.pages for cache, _ in self.live])


@settings(max_examples=120, deadline=None)
@given(ACTIONS)
def test_random_lives(actions: list[tuple[str, int, int, float]]) -> None:
    """Accept, reject, cancel, fork, rewind, export: rows stay what was committed, pages return."""
    lives = Lives()
    for action, which, count, share in actions:
        if not lives.live:
            lives.live.append((PagedCache(lives.pool), []))
        life = lives.live[which % len(lives.live)]
        getattr(lives, action)(life, count, share)
        lives.check()
    for cache, _ in lives.live:
        cache.release()
    assert lives.pool.num_used == 0


def test_a_tail_lands_where_it_came_from() -> None:
    pool = make_pool()
    cache = PagedCache(pool)
    feed(pool, cache, list(range(100)), 100)
    copy = cache.export(70, 90)
    assert copy.base == 64
    twin = PagedCache(pool)
    for page in range(pool.store.pages):
        if page not in cache.pages:
            pool.store.write_page(page, tuple(torch.full_like(t, torch.nan) for t in copy.pages[0]))
    twin.adopt(copy)
    assert (twin.floor, twin.length) == (64, 90)
    assert contents(pool, twin) == list(range(64, 90))


def test_what_lies_below_an_adopted_tail_is_zero() -> None:
    """A masked read multiplies it by zero, and NaN times zero is NaN."""
    pool = make_pool()
    cache = PagedCache(pool)
    feed(pool, cache, list(range(100)), 100)
    cache.floor = 70
    copy = cache.export(70, 90)
    assert copy.base == 70
    nan = tuple(torch.full_like(part, torch.nan) for part in copy.pages[0])
    for page in set(range(pool.store.pages)) - set(cache.pages):
        pool.store.write_page(page, nan)
    twin = PagedCache(pool)
    twin.adopt(copy)
    below = page_slots(twin.pages, 0, 70)
    assert isinstance(pool.store, ReferenceStore)
    assert not pool.store.k[:, below].any()
    assert not pool.store.v[:, below].any()
    assert contents(pool, twin) == list(range(70, 90))


def test_staged_rows_keep_their_pages() -> None:
    pool = make_pool()
    cache = PagedCache(pool)
    group = cache.stage(100)
    pages = tuple(cache.pages)
    cache.commit(1)
    assert len(cache.pages) == 1
    assert group.pages == pages
    assert len(pages) == 4


def test_staging_twice_and_overcommitting_are_refused() -> None:
    pool = make_pool()
    cache = PagedCache(pool)
    cache.stage(3)
    with pytest.raises(AssertionError, match="staged already"):
        cache.stage(1)
    with pytest.raises(AssertionError, match="4 of 3"):
        cache.commit(4)


def test_pages_needed_is_what_stage_takes() -> None:
    pool = make_pool()
    cache = PagedCache(pool)
    feed(pool, cache, list(range(40)), 40)
    twin = cache.fork()
    for count in (0, 1, 24, 25, 90):
        need = twin.pages_needed(count)
        before = pool.num_free
        twin.stage(count)
        assert before - pool.num_free <= need
        twin.commit(0)
        twin.release()
        twin = cache.fork()
    assert pages_for(PAGE_TOKENS + 1) == 2


def test_audit_catches_a_leaked_page() -> None:
    pool = make_pool()
    cache = PagedCache(pool)
    feed(pool, cache, [1], 1)
    with pytest.raises(AssertionError, match="page counts"):
        pool.audit([])
    pool.release(cache.pages[0])
    with pytest.raises(AssertionError, match="page counts"):
        pool.audit([cache.pages])
