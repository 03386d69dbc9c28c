"""Attention over pages and over blocks: against the reference, and row by row."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import filled_store, generator, one_group, randn, relative, same_bits

from outrider.kernels.rows import RowGroup, Rows

#: Relative error (RMS) of attention for normal keys and values: both are int8 with a scale per
#: token and head (half a step is 0.4 % of the largest of a row). Queries and weights have 16 bits.
BOUND = 0.012
SHAPES = [(3, 3, 64), (9, 3, 64), (4, 1, 40), (5, 1, 80), (8, 2, 128), (16, 1, 64), (1, 1, 32)]


def run(kernels, store, table, q, start, window=None, floor=0):
    rows = one_group(start, q.shape[0], floor, table)
    return kernels.attend(q, store, 0, rows, window)


@pytest.mark.parametrize(("heads", "kv", "d"), SHAPES)
@pytest.mark.parametrize(("window", "floor"), [(None, 0), (50, 0), (None, 77), (200, 130)])
def test_attention_matches_reference(native, reference, heads, kv, d, window, floor):
    q, start = randn(21, heads, d, seed=3), 290
    out = [
        run(k, *filled_store(k, start + 21, kv, d), q, start, window, floor)
        for k in (native, reference)
    ]
    assert relative(*out) < BOUND


@pytest.mark.parametrize(("heads", "kv", "d"), SHAPES)
@pytest.mark.parametrize("window", [None, 45])
def test_attention_rows_are_invariant(kernels, heads, kv, d, window):
    store, table = filled_store(kernels, 330, kv, d)
    q = randn(300, heads, d, seed=4)
    whole = run(kernels, store, table, q, 30, window)
    for count in (*range(1, 18), 33, 64, 300) if (heads, kv) == (9, 3) else (1, 2, 5, 33):
        for first in {0, 110, 300 - count}:
            part = run(kernels, store, table, q[first : first + count], 30 + first, window)
            assert same_bits(part, whole[first : first + count]), (count, first)


def test_groups_do_not_notice_each_other(kernels):
    store, table = filled_store(kernels, 700, 3, 64)
    groups = (
        RowGroup(600, 3, table),
        RowGroup(10, 1, table),
        RowGroup(0, 40, table),
        RowGroup(257, 5, table, 100),
    )
    q = randn(49, 9, 64)
    whole = kernels.attend(q, store, 0, Rows(groups), None)
    first = 0
    for group in groups:
        at = slice(first, first + group.count)
        assert same_bits(kernels.attend(q[at], store, 0, Rows((group,)), None), whole[at])
        first += group.count


def test_page_order_does_not_matter(kernels):
    shuffled = torch.randperm(53, generator=generator(3)).tolist()[:40]
    k, v, q = randn(1270, 2, 64), randn(1270, 2, 64, seed=1), randn(3, 4, 64, seed=2)
    outputs = []
    for table in (list(range(40)), shuffled):
        store = kernels.allocate(2, 53, 2, 64)
        rows = Rows((RowGroup(0, 1270, table),))
        for layer in range(2):
            kernels.write(store, layer, k * (layer + 1), v * (layer + 1), rows)
        outputs.append(run(kernels, store, table, q, 1267))
    assert same_bits(*outputs)


def test_rows_that_were_rewound_cannot_be_seen(native):
    """Rows above the frontier, below the floor and outside the window hold NaN."""
    store, table = filled_store(native, 400, 2, 64)
    q = randn(4, 4, 64, seed=2)
    clean = run(native, store, table, q, 300, 90, 150)
    bad = torch.full((90, 2, 64), torch.nan)
    native.write(store, 0, bad, bad, Rows((RowGroup(304, 90, table),)))
    native.write(store, 0, bad, bad, Rows((RowGroup(60, 90, table),)))
    assert same_bits(run(native, store, table, q, 300, 90, 150), clean)


def test_pages_that_were_never_written_cannot_be_seen(kernels):
    store, table = filled_store(kernels, 32, 2, 64, spare=3)
    for page in table[1:]:
        store.write_page(page, tuple(torch.full_like(t, 255) for t in store.read_page(page)))
    k, v = randn(3, 2, 64, seed=5), randn(3, 2, 64, seed=6)
    rows = Rows((RowGroup(32, 3, table),))
    kernels.write(store, 0, k, v, rows)
    assert kernels.attend(randn(3, 4, 64), store, 0, rows, None).isfinite().all()


def test_pages_move_whole(kernels):
    store, table = filled_store(kernels, 70, 2, 40, layers=2)
    q = randn(2, 4, 40)
    rows = one_group(68, 2, pages=table)
    before = [kernels.attend(q, store, layer, rows, None) for layer in range(2)]
    spare = next(page for page in range(store.pages) if page not in table[:3])
    store.copy_page(table[1], spare)
    contents = store.read_page(table[1])
    store.clear_page(table[1], 32)
    moved = one_group(68, 2, pages=[table[0], spare, table[2]])
    for layer in range(2):
        assert same_bits(kernels.attend(q, store, layer, moved, None), before[layer])
        assert not same_bits(kernels.attend(q, store, layer, rows, None), before[layer])
    store.write_page(table[1], contents)
    assert same_bits(kernels.attend(q, store, 1, rows, None), before[1])


def test_cleared_rows_are_zero(kernels):
    store, table = filled_store(kernels, 20, 2, 64)
    store.clear_page(table[0], 7)
    q = randn(1, 4, 64)
    first = run(kernels, store, table, q, 6)
    assert first.abs().max() == 0.0
    assert run(kernels, store, table, q, 7).abs().max() > 0.0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 6, 150])
@pytest.mark.parametrize(
    ("start", "floor", "count"), [(0, 0, 9), (140, 0, 9), (140, 139, 16), (300, 300, 7)]
)
def test_block_attention_matches_reference(native, reference, causal, window, start, floor, count):
    q, k, v = randn(count, 6, 40), randn(count, 2, 40, seed=1), randn(count, 2, 40, seed=2)
    outputs = []
    for kernels in (native, reference):
        store, table = filled_store(kernels, start, 2, 40)
        rows = one_group(start, count, floor, table)
        outputs.append(kernels.attend_block(q, k, v, store, 0, rows, window, causal))
    assert relative(*outputs) < BOUND


def test_block_attention_does_not_notice_other_groups(kernels):
    store, table = filled_store(kernels, 300, 2, 64)
    groups = (RowGroup(300, 8, table), RowGroup(40, 5, table, 20), RowGroup(0, 6, table))
    q, k, v = randn(19, 6, 64), randn(19, 2, 64, seed=1), randn(19, 2, 64, seed=2)
    whole = kernels.attend_block(q, k, v, store, 0, Rows(groups), 64, False)
    first = 0
    for group in groups:
        at = slice(first, first + group.count)
        part = kernels.attend_block(q[at], k[at], v[at], store, 0, Rows((group,)), 64, False)
        assert same_bits(part, whole[at])
        first += group.count


def test_block_rows_are_not_written(kernels):
    store, table = filled_store(kernels, 40, 2, 64)
    before = [store.read_page(page) for page in range(store.pages)]
    q, k = randn(5, 4, 64), randn(5, 2, 64)
    kernels.attend_block(q, k, k, store, 0, one_group(40, 5, pages=table), None, True)
    for page, contents in enumerate(before):
        assert all(map(torch.equal, store.read_page(page), contents))


def test_rows_outside_the_tables_are_refused(native):
    store, table = filled_store(native, 40, 2, 64)
    with pytest.raises(IndexError, match="do not reach"):
        native.attend(randn(1, 4, 64), store, 0, Rows((RowGroup(64, 1, table[:2]),)), None)
    with pytest.raises(IndexError, match="page ids"):
        native.attend(randn(1, 4, 64), store, 0, Rows((RowGroup(0, 1, [99]),)), None)
