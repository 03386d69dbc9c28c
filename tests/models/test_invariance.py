"""Slice and compare: a row's logits have the same bits in every pass, whatever shares it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.kernels.handles import Linear
from outrider.kernels.reference import ReferenceKernels, ReferenceLinear, _dense
from outrider.kernels.rows import Rows
from outrider.kernels.select import select
from outrider.kernels.table import Kernels
from outrider.models.dense import DenseModel
from support.tiny import VARIANTS, tiny_model

COUNTS = (*range(1, 18), 33, 64)
LENGTH = 300


def logits(model: DenseModel, ids: torch.Tensor, cuts: Sequence[int]) -> torch.Tensor:
    """Logits and taps of every position, fed in pieces of the given sizes, the last repeating."""
    pool = PagePool(model.allocate(12))
    cache = PagedCache(pool)
    parts, first, turn = [], 0, 0
    while first < len(ids):
        count = min(cuts[min(turn, len(cuts) - 1)], len(ids) - first)
        rows = Rows((cache.stage(count),))
        chunk = ids[first : first + count]
        out = model.forward(chunk, rows, pool.store, torch.arange(count), (0, 1))
        cache.commit(count)
        assert out.taps is not None
        parts.append(torch.cat([model.logits(out.hidden), out.taps], dim=-1))
        first, turn = first + count, turn + 1
    return torch.cat(parts)


def kernels_under_test() -> list[Kernels]:
    fast = select("cpu")
    return [ReferenceKernels(), *([fast] if fast.name != "reference" else [])]


@pytest.mark.parametrize("architecture", list(VARIANTS))
@pytest.mark.parametrize("kernels", kernels_under_test(), ids=lambda k: k.name)
def test_every_row_count(architecture: str, kernels: Kernels) -> None:
    model = tiny_model(VARIANTS[architecture], kernels, 512)
    ids = torch.randint(0, 48, (LENGTH,), generator=torch.Generator().manual_seed(3))
    whole = logits(model, ids, [LENGTH])
    for count in COUNTS:
        assert torch.equal(logits(model, ids, [count]), whole), f"{count} rows a pass"
        assert torch.equal(logits(model, ids, [5, count]), whole), f"5, then {count} rows"


@pytest.mark.parametrize("kernels", kernels_under_test(), ids=lambda k: k.name)
def test_rows_do_not_know_their_neighbours(kernels: Kernels) -> None:
    """Ragged passes over sessions at different depths, in either order, against each alone."""
    model = tiny_model(VARIANTS["mistral"], kernels, 512)
    pool = PagePool(model.allocate(64))
    random = torch.Generator().manual_seed(4)
    depths, counts = (0, 31, 70, 200, 7), (9, 1, 4, 3, 17)
    lengths = [depth + count for depth, count in zip(depths, counts, strict=True)]
    streams = [torch.randint(0, 48, (length,), generator=random) for length in lengths]
    alone = [
        logits(model, ids, [max(d, 1), c])[d:]
        for ids, d, c in zip(streams, depths, counts, strict=True)
    ]
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
        caches = []
        for place in order:
            cache = PagedCache(pool)
            if depths[place]:
                rows = Rows((cache.stage(depths[place]),))
                none = torch.empty(0, dtype=torch.int64)
                model.forward(streams[place][: depths[place]], rows, pool.store, none)
                cache.commit(depths[place])
            caches.append(cache)
        groups = tuple(c.stage(counts[place]) for c, place in zip(caches, order, strict=True))
        ids = torch.cat([streams[place][depths[place] :] for place in order])
        out = model.forward(ids, Rows(groups), pool.store, torch.arange(len(ids)), (0, 1))
        assert out.taps is not None
        mixed = torch.cat([model.logits(out.hidden), out.taps], dim=-1)
        expected = torch.cat([alone[place] for place in order])
        assert torch.equal(mixed, expected)
        for cache in caches:
            cache.release()


class VendorProducts(ReferenceKernels):
    """Lets the vendor library choose its program by the number of rows."""

    def linear(self, x: torch.Tensor, weight: Linear) -> torch.Tensor:
        return torch.nn.functional.linear(x, _dense(weight).weight, _dense(weight).bias)


class SplitByRows(ReferenceKernels):
    """Splits the sum over K in two from four rows on."""

    def linear(self, x: torch.Tensor, weight: Linear) -> torch.Tensor:
        dense = _dense(weight)
        if x.shape[0] < 4:
            return super().linear(x, weight)
        half = dense.in_features // 2
        low = ReferenceLinear(dense.weight[:, :half].contiguous(), None)
        high = ReferenceLinear(dense.weight[:, half:].contiguous(), dense.bias)
        return super().linear(x[:, :half], low) + super().linear(x[:, half:], high)


class SpansFromTheRow(ReferenceKernels):
    """Counts spans of keys from the first row of the pass, not from position 0."""

    def attend(self, q, store, layer, rows, window):  # type: ignore[no-untyped-def]
        shift = min(group.start for group in rows.groups) % 7
        return super().attend(q, store, layer, rows, (window or 10**6) - shift)


@pytest.mark.parametrize("broken", [SplitByRows, SpansFromTheRow])
def test_the_gate_catches_broken_twins(broken: type[ReferenceKernels]) -> None:
    model = tiny_model(VARIANTS["mistral"], broken(), 512)
    ids = torch.randint(0, 48, (LENGTH,), generator=torch.Generator().manual_seed(3))
    whole = logits(model, ids, [LENGTH])
    assert any(not torch.equal(logits(model, ids, [count]), whole) for count in COUNTS)
