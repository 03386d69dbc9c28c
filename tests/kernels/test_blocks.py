"""Whole drafts of blocks, and the context rows they read: fused against composed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_toys import generator, make_stack, randn, raw, same_bits

from outrider.kernels.composed import ComposedKernels
from outrider.kernels.rows import RowGroup, Rows
from outrider.kernels.values import Block, BlockDraftWeights, ContextWeights, MarkovWeights

VOCAB, DRAFT, RANK, SIZE, CONTEXT = 300, 139, 64, 7, 90


def make_draft_weights(kernels, fmt="Q8_0", first=0, confidence=True, scale=1.0):
    stack = make_stack(kernels, fmt=fmt, heads=9, kv=3, d=64, causal=False)
    hidden = stack.hidden_size
    markov = MarkovWeights(
        kernels.prepare([raw("Q8_0", VOCAB, RANK, seed=1)]),
        kernels.prepare([raw("Q8_0", DRAFT, RANK, seed=2)]),
        torch.randperm(VOCAB, generator=generator(3))[:DRAFT],
    )
    return BlockDraftWeights(
        stack,
        kernels.prepare([raw(fmt, VOCAB, hidden, seed=4)]),
        scale,
        randn(1, hidden, seed=5).repeat(SIZE, 1),
        first,
        randn(hidden, seed=6),
        kernels.prepare([raw(fmt, DRAFT, hidden, seed=7)]),
        markov,
        randn(hidden + RANK + 1, seed=8) * 0.05 if confidence else None,
    )


def filled(kernels, weights, dtype=None):
    hidden = weights.masks.shape[1]
    store = kernels.allocate(weights.stack.layers, 8, 3, 64, dtype or kernels.draft_kv_dtype)
    kernels.run_layers(
        weights.stack,
        randn(CONTEXT, hidden, seed=9),
        Rows((RowGroup(0, CONTEXT, [0, 1, 2]),)),
        store,
    )
    return store


def make_rows(starts):
    return Rows(tuple(RowGroup(start, SIZE, [0, 1, 2]) for start in starts))


BLOCKS = [Block(7, 5), Block(3, 299, 0.9, 2**63 + 1, 40), Block(6, 0, 0.7, 3, 9), Block(1, 17)]
STARTS = [90, 31, 64, 2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fmt": "Q4_1", "first": 1, "scale": 3.0},
        {"confidence": False},
        {"fmt": "F32", "first": 0},
    ],
    ids=["plain", "shifted", "unsure", "f32"],
)
def test_fused_draft_is_the_composed_one(native, options, kv_dtype):
    weights = make_draft_weights(native, **options)
    drafter, rows = native.prepare_block_drafter(weights), make_rows(STARTS)
    store, most = filled(native, weights, kv_dtype), SIZE - weights.first
    blocks = [replace(block, length=min(block.length, most)) for block in BLOCKS]
    chosen, sure = native.draft_blocks(drafter, rows, store, blocks)
    want, want_sure = ComposedKernels.draft_blocks(native, drafter, rows, store, blocks)
    assert torch.equal(chosen, want)
    assert torch.allclose(sure, want_sure, atol=1e-5)
    assert weights.confidence is None or sure.std() > 0.01


def test_drafts_do_not_depend_on_the_batch(kernels):
    weights = make_draft_weights(kernels)
    drafter, store = kernels.prepare_block_drafter(weights), filled(kernels, weights)
    chosen, sure = kernels.draft_blocks(drafter, make_rows(STARTS), store, BLOCKS)
    first = 0
    for start, block in zip(STARTS, BLOCKS, strict=True):
        alone, alone_sure = kernels.draft_blocks(drafter, make_rows([start]), store, [block])
        last = first + block.length
        assert torch.equal(chosen[first:last], alone)
        assert torch.allclose(sure[first:last], alone_sure, atol=1e-6)
        first = last


def test_states_that_are_not_finite_show(kernels):
    weights = make_draft_weights(kernels)
    weights.masks[3, 0] = torch.nan
    drafter, store = kernels.prepare_block_drafter(weights), filled(kernels, weights)
    _, sure = kernels.draft_blocks(drafter, make_rows([90]), store, [Block(7, 5)])
    assert sure.isnan().any()


def test_blocks_that_do_not_fit_are_refused(native):
    weights = make_draft_weights(native, first=1)
    drafter, store = native.prepare_block_drafter(weights), filled(native, weights)
    with pytest.raises(ValueError, match=r"lengths|groups"):
        native.draft_blocks(drafter, make_rows([90]), store, [Block(7, 5)])
    with pytest.raises(ValueError, match=r"lengths|groups"):
        native.draft_blocks(drafter, make_rows([90, 3]), store, [Block(2, 5)])
    with pytest.raises(IndexError, match="token ids"):
        native.draft_blocks(drafter, make_rows([90]), store, [Block(2, VOCAB)])


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_1", "F32"])
@pytest.mark.parametrize("count", [1, 3, 8, 50])
def test_fused_ingest_is_the_composed_one(native, fmt, count, kv_dtype):
    stack = make_stack(native, fmt=fmt, heads=9, kv=3, d=64, qk_norm=True)
    hidden, width = stack.hidden_size, 2 * stack.layers * 3 * 64
    weights = ContextWeights(
        stack,
        native.prepare([raw(fmt, hidden, 3 * hidden, seed=1)]),
        randn(hidden, seed=2),
        native.prepare([raw(fmt, width, hidden, seed=3)], randn(width, seed=4)),
    )
    taps, rows = randn(count, 3 * hidden), Rows((RowGroup(40, count, [3, 1, 0]),))
    stores = [native.allocate(stack.layers, 4, 3, 64, kv_dtype) for _ in range(2)]
    context, kept = native.prepare_context(weights), taps.clone()
    native.ingest(context, taps, rows, stores[0])
    assert same_bits(taps, kept), "the input was changed"
    ComposedKernels.ingest(native, context, taps, rows, stores[1])
    for page in range(4):
        assert torch.equal(stores[0].read_page(page)[0], stores[1].read_page(page)[0])
