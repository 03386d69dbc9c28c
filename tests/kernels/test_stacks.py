"""Whole stacks: fused against composed, row by row, and on any number of threads."""

from __future__ import annotations

import weakref

import pytest
import torch
from kernel_toys import make_stack, make_weights, one_group, randn, relative, same_bits

from outrider.kernels.composed import ComposedKernels
from outrider.kernels.rows import RowGroup, Rows

VARIANTS = {
    "llama": {"fmt": "Q4_1", "heads": 9, "kv": 3, "d": 64},
    "odd-width": {"fmt": "Q4_0", "heads": 4, "kv": 2, "d": 40, "inner": 96},
    "qwen": {"fmt": "Q8_0", "heads": 4, "kv": 1, "d": 128, "qk_norm": True, "bias": True},
    "window": {"fmt": "Q4_1", "heads": 8, "kv": 2, "d": 80, "window": 70},
    "bf16": {"fmt": "BF16", "heads": 3, "kv": 1, "d": 32, "hidden": 60, "inner": 100},
    "f32": {"fmt": "F32", "heads": 2, "kv": 2, "d": 64, "inner": 160},
    "k-quant": {"fmt": "Q6_K", "heads": 4, "kv": 4, "d": 64, "layers": 1},
}
#: Relative error (RMS) of two random layers: the sum of what products and attention add.
BOUND = {"bf16": 0.01, "f32": 0.01}


@pytest.mark.parametrize("name", VARIANTS)
def test_fused_layers_are_the_composed_ones(native, name, kv_dtype):
    stack = make_stack(native, **VARIANTS[name])
    x, layers = randn(150, stack.hidden_size), stack.layers
    g, d = stack.kv_heads, stack.head_dim
    stores = [native.allocate(layers, 6, g, d, kv_dtype) for _ in range(2)]
    taps = (layers - 1, -1, 0)
    for start, count in ((0, 100), (100, 1), (101, 9), (110, 40)):
        rows = one_group(start, count, pages=[5, 1, 0, 3, 2])
        part = x[start : start + count]
        fused = native.run_layers(stack, part, rows, stores[0], taps)
        composed = ComposedKernels.run_layers(native, stack, part, rows, stores[1], taps)
        assert all(map(same_bits, fused, composed)), (start, count)
    assert torch.equal(stores[0].read_page(3)[0], stores[1].read_page(3)[0])


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("causal", [True, False])
def test_fused_block_is_the_composed_one(native, name, causal, kv_dtype):
    stack = make_stack(native, **VARIANTS[name], causal=causal)
    x, layers = randn(90, stack.hidden_size), stack.layers
    store = native.allocate(layers, 4, stack.kv_heads, stack.head_dim, kv_dtype)
    native.run_layers(stack, x, one_group(0, 90, pages=[0, 1, 2]), store)
    groups = (RowGroup(90, 7, [0, 1, 2]), RowGroup(33, 5, [0, 1], 20), RowGroup(0, 3, []))
    block = randn(15, stack.hidden_size, seed=7)
    fused = native.run_block(stack, block, Rows(groups), store)
    assert same_bits(fused, ComposedKernels.run_block(native, stack, block, Rows(groups), store))


@pytest.mark.parametrize("name", VARIANTS)
def test_fused_context_is_the_composed_one(native, name, kv_dtype):
    stack = make_stack(native, **VARIANTS[name])
    g, d, layers = stack.kv_heads, stack.head_dim, stack.layers
    groups = (RowGroup(30, 40, [4, 1, 0]), RowGroup(0, 1, [2]), RowGroup(5, 9, [3], 5))
    flat = randn(50, layers * 2 * g * d)
    stores = [native.allocate(layers, 5, g, d, kv_dtype) for _ in range(2)]
    kept = flat.clone()
    native.write_context(stack, flat, Rows(groups), stores[0])
    assert same_bits(flat, kept), "the input was changed"
    ComposedKernels.write_context(native, stack, flat, Rows(groups), stores[1])
    for page in range(5):
        assert torch.equal(stores[0].read_page(page)[0], stores[1].read_page(page)[0])


def test_shapes_that_do_not_fit_are_refused(native):
    stack = make_stack(native, **VARIANTS["llama"])
    store = native.allocate(stack.layers, 2, 3, 64, "int8")
    with pytest.raises(ValueError, match="shape"):
        native.run_layers(stack, randn(3, stack.hidden_size), one_group(0, 4), store)
    with pytest.raises(ValueError, match="shape"):
        native.run_block(stack, randn(4, stack.hidden_size + 32), one_group(0, 4), store)
    with pytest.raises(IndexError, match="reach"):
        native.run_block(stack, randn(4, stack.hidden_size), Rows((RowGroup(40, 4, [0]),)), store)
    with pytest.raises(IndexError, match="page ids"):
        native.run_block(stack, randn(4, stack.hidden_size), Rows((RowGroup(10, 4, [2]),)), store)
    with pytest.raises(ValueError, match="shape"):
        native.write_context(stack, randn(4, 33), one_group(0, 4), store)


@pytest.mark.parametrize("name", VARIANTS)
def test_layers_match_reference(native, reference, name, kv_dtype):
    outputs = []
    for kernels in (native, reference):
        stack = make_stack(kernels, **VARIANTS[name])
        layers, g, d = stack.layers, stack.kv_heads, stack.head_dim
        store = kernels.allocate(layers, 4, g, d, kv_dtype)
        outputs.append(
            kernels.run_layers(stack, randn(60, stack.hidden_size), one_group(0, 60), store)[0]
        )
    assert relative(*outputs) < BOUND.get(name, 0.03)


@pytest.mark.parametrize("name", ["llama", "window", "bf16"])
def test_layers_are_invariant_under_chunking(kernels, name, kv_dtype):
    stack = make_stack(kernels, **VARIANTS[name])
    x, table = randn(300, stack.hidden_size), list(range(10))
    whole = None
    for chunks in (
        [300],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64, 50],
        [150, 150],
    ):
        layers, g, d = stack.layers, stack.kv_heads, stack.head_dim
        store = kernels.allocate(layers, 10, g, d, kv_dtype)
        parts, start = [], 0
        for count in chunks:
            rows = one_group(start, count, pages=table)
            parts.append(kernels.run_layers(stack, x[start : start + count], rows, store)[0])
            start += count
        got = torch.cat(parts)
        whole = got if whole is None else whole
        assert same_bits(got, whole), chunks


def test_layers_are_invariant_in_a_batch(kernels, kv_dtype):
    stack = make_stack(kernels, **VARIANTS["llama"])
    tables = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], [14, 15], [16]]
    store = kernels.allocate(stack.layers, 17, 3, 64, kv_dtype)
    prompts = [randn(count, stack.hidden_size, seed=i) for i, count in enumerate((400, 50, 20))]
    for table, prompt in zip(tables, prompts, strict=True):
        kernels.run_layers(stack, prompt, Rows((RowGroup(0, len(prompt), table),)), store)
    counts = (1, 6, 9)
    steps = [randn(count, stack.hidden_size, seed=9) for count in counts]
    groups = [RowGroup(len(p), c, t) for p, c, t in zip(prompts, counts, tables, strict=True)]
    alone = [
        kernels.run_layers(stack, s, Rows((g,)), store)[0]
        for s, g in zip(steps, groups, strict=True)
    ]
    together, _ = kernels.run_layers(stack, torch.cat(steps), Rows(tuple(groups)), store)
    assert same_bits(together, torch.cat(alone))


def test_threads_do_not_change_bits(native, kv_dtype):
    from outrider.kernels.cpu.kernels import CpuKernels

    path = native.name.removeprefix("cpu-")
    outputs = []
    for threads in (1, 2, 3):
        kernels = CpuKernels(threads, path)
        stack = make_stack(kernels, **VARIANTS["llama"])
        store = kernels.allocate(stack.layers, 30, 3, 64, kv_dtype)
        x = randn(900, stack.hidden_size)
        prompt, _ = kernels.run_layers(stack, x, one_group(0, 900, pages=list(range(30))), store)
        step, _ = kernels.run_layers(stack, x[:1], one_group(900, 1, pages=list(range(30))), store)
        verify, _ = kernels.run_layers(
            stack, x[:8], one_group(900, 8, pages=list(range(30))), store
        )
        outputs.append(torch.cat([prompt, step, verify]))
    assert same_bits(outputs[0], outputs[1])
    assert same_bits(outputs[0], outputs[2])
    assert same_bits(outputs[0][-9], outputs[0][-8])


def test_a_stack_keeps_its_weights_and_goes_with_them(native):
    weights = make_weights(native, **VARIANTS["llama"])
    norm = weakref.ref(weights.layers[1].mlp_norm)
    stack = native.prepare_stack(weights)
    del weights
    assert norm() is not None, "native code reads it by its address"
    del stack
    assert norm() is None
