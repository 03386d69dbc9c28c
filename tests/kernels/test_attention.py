"""Attention over pages and over blocks: against the reference, and row by row."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import (
    ScaleByCall,
    filled_store,
    generator,
    one_group,
    randn,
    relative,
    same_bits,
)

from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows

#: Relative error (RMS) of attention for normal keys and values, against float32. int8 has a scale
#: per token and head (half a step is 0.4 % of the largest of a row), bfloat16 half a step of 0.4 %
#: at most; of float32 only the order of sums is left.
BOUND = {"int8": 0.012, "bfloat16": 0.004, "float32": 2e-6}
#: The same against the reference with keys and values of that precision: over int8 keys, queries
#: and weights have 16 bits.
EXACT = {"int8": 1e-4, "bfloat16": 2e-6, "float32": 2e-6}
SHAPES = [(3, 3, 64), (9, 3, 64), (4, 1, 40), (5, 1, 80), (8, 2, 128), (16, 1, 64), (1, 1, 32)]


def run(kernels, store, table, q, start, window=None, floor=0):
    rows = one_group(start, q.shape[0], floor, table)
    return kernels.attend(q, store, 0, rows, window)


@pytest.mark.parametrize(("heads", "kv", "d"), SHAPES)
@pytest.mark.parametrize(("window", "floor"), [(None, 0), (50, 0), (None, 77), (200, 130)])
def test_attention_matches_reference(native, reference, heads, kv, d, window, floor, kv_dtype):
    q, start = randn(21, heads, d, seed=3), 290
    got, alike, exact = (
        run(k, *filled_store(k, start + 21, kv, d, dtype=dtype), q, start, window, floor)
        for k, dtype in ((native, kv_dtype), (reference, kv_dtype), (reference, "float32"))
    )
    assert relative(got, exact) < BOUND[kv_dtype]
    assert relative(got, alike) < EXACT[kv_dtype]


@pytest.mark.parametrize(("heads", "kv", "d"), SHAPES)
@pytest.mark.parametrize("window", [None, 45])
def test_attention_rows_are_invariant(kernels, heads, kv, d, window, kv_dtype):
    store, table = filled_store(kernels, 330, kv, d, dtype=kv_dtype)
    q = randn(300, heads, d, seed=4)
    whole = run(kernels, store, table, q, 30, window)
    for count in (*range(1, 18), 33, 64, 300) if (heads, kv) == (9, 3) else (1, 2, 5, 33):
        for first in {0, 110, 300 - count}:
            part = run(kernels, store, table, q[first : first + count], 30 + first, window)
            assert same_bits(part, whole[first : first + count]), (count, first)


def test_groups_do_not_notice_each_other(kernels, kv_dtype):
    store, table = filled_store(kernels, 700, 3, 64, dtype=kv_dtype)
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


def test_page_order_does_not_matter(kernels, kv_dtype):
    shuffled = torch.randperm(53, generator=generator(3)).tolist()[:40]
    k, v, q = randn(1270, 2, 64), randn(1270, 2, 64, seed=1), randn(3, 4, 64, seed=2)
    outputs = []
    for table in (list(range(40)), shuffled):
        store = kernels.allocate(2, 53, 2, 64, kv_dtype)
        rows = Rows((RowGroup(0, 1270, table),))
        for layer in range(2):
            kernels.write(store, layer, k * (layer + 1), v * (layer + 1), rows)
        outputs.append(run(kernels, store, table, q, 1267))
    assert same_bits(*outputs)


def test_rows_that_were_rewound_cannot_be_seen(kernels, kv_dtype):
    """Rows above the frontier, below the floor and outside the window hold NaN."""
    store, table = filled_store(kernels, 400, 2, 64, dtype=kv_dtype)
    q = randn(4, 4, 64, seed=2)
    clean = run(kernels, store, table, q, 300, 90, 150)
    bad = torch.full((90, 2, 64), torch.nan)
    kernels.write(store, 0, bad, bad, Rows((RowGroup(304, 90, table),)))
    kernels.write(store, 0, bad, bad, Rows((RowGroup(60, 90, table),)))
    assert same_bits(run(kernels, store, table, q, 300, 90, 150), clean)


def spoilt_rows(kernels, kv_dtype, side):
    """Attention of rows 250 .. 311 in a window of 40 over row 260 with one NaN in head 1; clean."""
    store, table = filled_store(kernels, 312, 2, 64, dtype=kv_dtype)
    q = randn(62, 6, 64, seed=2)
    clean = run(kernels, store, table, q, 250, 40)
    row = [randn(1, 2, 64, seed=8), randn(1, 2, 64, seed=9)]
    kernels.write(store, 0, *row, one_group(260, 1, pages=table))
    fine = run(kernels, store, table, q, 250, 40)
    row[side][0, 1, 17] = torch.nan
    kernels.write(store, 0, *row, one_group(260, 1, pages=table))
    return run(kernels, store, table, q, 250, 40).view(62, 6, 64), fine.view(62, 6, 64), clean


def only_who_sees_is_spoilt(got, fine, side):
    sees = slice(10, 50)
    spoilt = got[sees, 3:] if side == 0 else got[sees, 3:, 17]
    apart = torch.cat([got[:10], got[50:]]), torch.cat([fine[:10], fine[50:]])
    other_heads = got[sees, :3].contiguous(), fine[sees, :3].contiguous()
    return bool(spoilt.isnan().all()) and same_bits(*apart) and same_bits(*other_heads)


@pytest.mark.parametrize("side", [0, 1], ids=["key", "value"])
def test_nan_reaches_who_sees_it(kernels, kv_dtype, side):
    got, fine, _ = spoilt_rows(kernels, kv_dtype, side)
    assert only_who_sees_is_spoilt(got, fine, side)


def test_nan_gate_sees_weights_of_zero(reference, monkeypatch):
    """Broken on purpose: masked rows are left to their weight of 0, and 0 times NaN is NaN."""
    monkeypatch.setattr(
        "outrider.kernels.reference._mix", lambda weights, values, seen: torch.bmm(weights, values)
    )
    got, fine, _ = spoilt_rows(reference, "float32", 1)
    assert not only_who_sees_is_spoilt(got, fine, 1)


@pytest.mark.parametrize("side", [0, 1], ids=["key", "value"])
def test_nan_of_a_block_reaches_who_sees_it(kernels, kv_dtype, side):
    store, table = filled_store(kernels, 70, 2, 64, dtype=kv_dtype)
    q, own = randn(9, 6, 64), [randn(9, 2, 64, seed=1), randn(9, 2, 64, seed=2)]
    rows = one_group(70, 9, pages=table)
    fine = kernels.attend_block(q, *own, store, 0, rows, 3, True).view(9, 6, 64)
    own[side][4, 1, 17] = torch.nan
    got = kernels.attend_block(q, *own, store, 0, rows, 3, True).view(9, 6, 64)
    assert got[4:7, 3:, 17].isnan().all()
    assert same_bits(got[:, :3].contiguous(), fine[:, :3].contiguous())
    assert same_bits(got[:4], fine[:4])
    assert same_bits(got[7:], fine[7:])


def written_in_pieces(kernels, kv_dtype, counts):
    """Attention over 300 rows that were written so many at a time."""
    store, table = filled_store(kernels, 0, 2, 40, spare=10, dtype=kv_dtype)
    k, v = randn(300, 2, 40, seed=1), randn(300, 2, 40, seed=2)
    first = 0
    for count in counts:
        part = slice(first, first + count)
        kernels.write(store, 0, k[part], v[part], one_group(first, count, pages=table))
        first += count
    assert first == 300
    return run(kernels, store, table, randn(5, 4, 40), 295)


PIECES = [[1] * 300, [31, 1, 2, 66, 200], [150, 150]]


def test_writing_is_invariant(kernels, kv_dtype):
    whole = written_in_pieces(kernels, kv_dtype, [300])
    for counts in PIECES:
        assert same_bits(written_in_pieces(kernels, kv_dtype, counts), whole)


def test_writing_gate_sees_a_scale_of_the_call(kv_dtype):
    whole = written_in_pieces(ScaleByCall(), kv_dtype, [300])
    assert not any(
        same_bits(written_in_pieces(ScaleByCall(), kv_dtype, counts), whole) for counts in PIECES
    )


def test_a_lone_row_shows_how_values_are_kept(kernels, kv_dtype):
    """The only visible key has weight 1, so that the output is its value as the page keeps it."""
    v = torch.tensor([1.0, -2.5, 0.3, 1.00390625, 1.01171875, 0.0, -1e-39, 0.0]).repeat(1, 1, 5)
    v[..., 5::8] = 127.0  # int8: the scale is 1
    store = kernels.allocate(1, 1, 1, 40, kv_dtype)
    row = one_group(0, 1)
    kernels.write(store, 0, randn(1, 1, 40), v, row)
    got = kernels.attend(randn(1, 1, 40), store, 0, row, None).view(-1, 8)
    kept = {
        "int8": [1.0, -2.0, 0.0, 1.0, 1.0, 127.0, 0.0, 0.0],
        # 1 + 1/256 lies half-way between 1 and 1 + 1/128, 1 + 3/256 between 1 + 1/128 and 1 + 1/64.
        "bfloat16": [1.0, -2.5, 0.30078125, 1.0, 1.015625, 127.0, -11 * 2.0**-133, 0.0],
        "float32": [1.0, -2.5, 0.3, 1.00390625, 1.01171875, 127.0, -1e-39, 0.0],
    }[kv_dtype]
    exact = kv_dtype != "int8" or kernels.name == "reference"
    # int8 weights are 65535 times a scale, which costs an ulp or two.
    assert torch.allclose(
        got, torch.tensor(kept).expand(5, 8), rtol=0 if exact else 1e-6, atol=1e-42
    )


def test_pages_take_what_they_hold(native, kv_dtype):
    """Two layers, three heads of 40: 40 dimensions of keys, 48 of values, and int8 scales."""
    tokens = {"int8": 40 + 48 + 8, "bfloat16": 2 * (40 + 48), "float32": 4 * (40 + 48)}[kv_dtype]
    store = native.allocate(2, 3, 3, 40, kv_dtype)
    assert store.page_nbytes == 2 * 3 * PAGE_TOKENS * tokens
    assert (store.dtype, store.read_page(0)[0].numel()) == (kv_dtype, store.page_nbytes)


def test_unknown_precision_is_refused(native):
    with pytest.raises(ValueError, match="fp8"):
        native.allocate(1, 1, 1, 64, "fp8")


def test_pages_that_were_never_written_cannot_be_seen(kernels, kv_dtype):
    store, table = filled_store(kernels, 32, 2, 64, spare=3, dtype=kv_dtype)
    for page in table[1:]:
        parts = store.read_page(page)
        bad = (torch.full_like(t, torch.nan if t.is_floating_point() else 255) for t in parts)
        store.write_page(page, tuple(bad))  # bytes of 255 are NaN in every float format
    k, v = randn(3, 2, 64, seed=5), randn(3, 2, 64, seed=6)
    rows = Rows((RowGroup(32, 3, table),))
    kernels.write(store, 0, k, v, rows)
    assert kernels.attend(randn(3, 4, 64), store, 0, rows, None).isfinite().all()


def test_pages_move_whole(kernels, kv_dtype):
    store, table = filled_store(kernels, 70, 2, 40, layers=2, dtype=kv_dtype)
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


def test_cleared_rows_are_zero(kernels, kv_dtype):
    store, table = filled_store(kernels, 20, 2, 64, dtype=kv_dtype)
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
def test_block_attention_matches_reference(
    native, reference, causal, window, start, floor, count, kv_dtype
):
    q, k, v = randn(count, 6, 40), randn(count, 2, 40, seed=1), randn(count, 2, 40, seed=2)
    outputs = []
    for kernels, dtype in ((native, kv_dtype), (reference, kv_dtype), (reference, "float32")):
        store, table = filled_store(kernels, start, 2, 40, dtype=dtype)
        rows = one_group(start, count, floor, table)
        outputs.append(kernels.attend_block(q, k, v, store, 0, rows, window, causal))
    got, alike, exact = outputs
    assert relative(got, exact) < BOUND[kv_dtype]
    assert relative(got, alike) < EXACT[kv_dtype]


def test_block_attention_does_not_notice_other_groups(kernels, kv_dtype):
    store, table = filled_store(kernels, 300, 2, 64, dtype=kv_dtype)
    groups = (RowGroup(300, 8, table), RowGroup(40, 5, table, 20), RowGroup(0, 6, table))
    q, k, v = randn(19, 6, 64), randn(19, 2, 64, seed=1), randn(19, 2, 64, seed=2)
    whole = kernels.attend_block(q, k, v, store, 0, Rows(groups), 64, False)
    first = 0
    for group in groups:
        at = slice(first, first + group.count)
        part = kernels.attend_block(q[at], k[at], v[at], store, 0, Rows((group,)), 64, False)
        assert same_bits(part, whole[at])
        first += group.count


def test_block_rows_are_not_written(kernels, kv_dtype):
    store, table = filled_store(kernels, 40, 2, 64, dtype=kv_dtype)
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
