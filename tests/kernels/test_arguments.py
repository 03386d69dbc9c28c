"""Native operators refuse what does not fit before C++ sees an address."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kernel_toys import make_weights, one_group, randn, raw, rotary, same_bits

from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.rows import RowGroup, Rows
from outrider.kernels.values import ContextWeights, MarkovWeights, RotaryTable
from outrider.kernels.weights import RawWeight

HEADS, KV, D, HIDDEN = 4, 2, 40, 96
IDS = torch.tensor([1, 2])
ROWS = one_group(0, 2)
Q, K = randn(2, HEADS, D), randn(2, KV, D)


def weights_of(kernels):
    return make_weights(kernels, heads=HEADS, kv=KV, d=D, hidden=HIDDEN)


def stack_of(kernels):
    return kernels.prepare_stack(weights_of(kernels))


def matrix(kernels, n=64, k=HIDDEN):
    return kernels.prepare([raw("Q8_0", n, k)])


def pages(kernels, layers=2, d=D):
    return kernels.allocate(layers, 4, KV, d, "int8")


def prepare(kernels, **changed):
    """A stack whose first layer has other weights."""
    weights = weights_of(kernels)
    layer = replace(weights.layers[0], **changed)
    return kernels.prepare_stack(replace(weights, layers=(layer, *weights.layers[1:])))


def run(kernels, x=None, store=None, taps=()):
    x = randn(2, HIDDEN) if x is None else x
    return kernels.run_layers(stack_of(kernels), x, ROWS, store or pages(kernels), taps)


def context(kernels, norm=None, width=HIDDEN, out=2 * 2 * KV * D):
    norm = randn(HIDDEN) if norm is None else norm
    fc, keys_values = matrix(kernels, width), matrix(kernels, out)
    return kernels.prepare_context(ContextWeights(stack_of(kernels), fc, norm, keys_values))


def bias(kernels, out, ids=None):
    return kernels.prepare_markov_bias(MarkovWeights(matrix(kernels, 64, 32), out, ids))


REFUSED = {
    "floats as ids": (TypeError, lambda k: k.embed(matrix(k), randn(2))),
    "booleans as ids": (TypeError, lambda k: k.embed(matrix(k), torch.tensor([True]))),
    "ids outside": (IndexError, lambda k: k.embed(matrix(k), torch.tensor([64]))),
    "ids below zero": (IndexError, lambda k: k.embed(matrix(k), torch.tensor([-1]))),
    "integers as states": (TypeError, lambda k: k.linear(torch.ones(2, HIDDEN).int(), matrix(k))),
    "states without memory": (
        TypeError,
        lambda k: k.linear(torch.empty(2, HIDDEN, device="meta"), matrix(k)),
    ),
    "sparse states": (TypeError, lambda k: k.linear(randn(2, HIDDEN).to_sparse(), matrix(k))),
    "narrow states": (ValueError, lambda k: k.linear(randn(2, HIDDEN - 1), matrix(k))),
    "narrow states, argmax": (ValueError, lambda k: k.argmax(randn(2, HIDDEN - 1), matrix(k))),
    "a key too few": (
        ValueError,
        lambda k: k.draw(randn(2, HIDDEN), matrix(k), [1.0, 1.0], [1], [3, 4]),
    ),
    "a short norm": (ValueError, lambda k: k.rms_norm(randn(2, HIDDEN), randn(95), 1e-5)),
    "odd gates": (ValueError, lambda k: k.swiglu(randn(2, 7))),
    "positions outside": (
        IndexError,
        lambda k: k.rotate(Q, torch.tensor([3, 9]), rotary(D, positions=9)),
    ),
    "a position too few": (ValueError, lambda k: k.rotate(Q, torch.tensor([3]), rotary(D))),
    "narrow angles": (ValueError, lambda k: k.rotate(Q, IDS, rotary(D - 2))),
    "unequal angles": (
        ValueError,
        lambda k: k.rotate(Q, IDS, RotaryTable(rotary(D).cos, rotary(D).sin[:9])),
    ),
    "wide keys": (ValueError, lambda k: k.write(pages(k, d=32), 0, K, K, ROWS)),
    "keys of one row": (ValueError, lambda k: k.write(pages(k), 0, K[:1], K, ROWS)),
    "a layer outside": (IndexError, lambda k: k.write(pages(k), 2, K, K, ROWS)),
    "a layer below zero": (IndexError, lambda k: k.attend(Q, pages(k), -1, ROWS, None)),
    "rows below zero": (
        IndexError,
        lambda k: k.attend(Q, pages(k), 0, Rows((RowGroup(-1, 2, [0]),)), None),
    ),
    "uneven heads": (ValueError, lambda k: k.attend(Q[:, :3], pages(k), 0, ROWS, None)),
    "queries of another width": (ValueError, lambda k: k.attend(Q, pages(k, d=32), 0, ROWS, None)),
    "block keys of one row": (
        ValueError,
        lambda k: k.attend_block(Q, K[:1], K, pages(k), 0, ROWS, None, True),
    ),
    "another's weight": (
        TypeError,
        lambda k: k.linear(randn(2, HIDDEN), matrix(ReferenceKernels())),
    ),
    "another's weight in a stack": (
        TypeError,
        lambda k: prepare(k, out=matrix(ReferenceKernels(), HIDDEN, HEADS * D)),
    ),
    "another's stack": (
        TypeError,
        lambda k: k.run_layers(stack_of(ReferenceKernels()), randn(2, HIDDEN), ROWS, pages(k)),
    ),
    "another's pages": (TypeError, lambda k: k.write(pages(ReferenceKernels()), 0, K, K, ROWS)),
    "pages of fewer layers": (ValueError, lambda k: run(k, store=pages(k, layers=1))),
    "taps outside": (ValueError, lambda k: run(k, taps=(2,))),
    "a stream without memory": (
        TypeError,
        lambda k: run(k, x=torch.empty(2, HIDDEN, device="meta")),
    ),
    "weights of another shape": (ValueError, lambda k: prepare(k, out=matrix(k, 240))),
    "a short norm in a stack": (ValueError, lambda k: prepare(k, mlp_norm=randn(HIDDEN - 1))),
    "a short norm of context": (ValueError, lambda k: context(k, randn(95))),
    "context of one layer": (ValueError, lambda k: context(k, out=2 * KV * D)),
    "context of another width": (ValueError, lambda k: context(k, width=64)),
    "a bias of another width": (ValueError, lambda k: bias(k, matrix(k, 64, 64))),
    "more choices than tokens": (ValueError, lambda k: bias(k, matrix(k, 80, 32))),
    "target ids outside": (
        IndexError,
        lambda k: bias(k, matrix(k, 16, 32), torch.arange(50, 66)),
    ),
    "data of another dtype": (
        TypeError,
        lambda k: k.prepare([RawWeight("w", (4, 32), "F32", randn(4, 32).double())]),
    ),
    "data of another size": (
        ValueError,
        lambda k: k.prepare([RawWeight("w", (4, 32), "F32", randn(4, 31))]),
    ),
    "blocks of another size": (
        ValueError,
        lambda k: k.prepare([RawWeight("w", (8, 32), "Q8_0", raw("Q8_0", 4, 32).data)]),
    ),
    "unequal inputs": (ValueError, lambda k: k.prepare([raw("F32", 4, 32), raw("F32", 4, 64)])),
    "a short offset": (ValueError, lambda k: k.prepare([raw("F32", 4, 32)], randn(3))),
    "contents of another page": (
        ValueError,
        lambda k: pages(k).write_page(0, pages(k, layers=1).read_page(0)),
    ),
    "rows beyond a page": (ValueError, lambda k: pages(k).clear_page(0, 33)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(native, name: str) -> None:
    error, call = REFUSED[name]
    with pytest.raises(error):
        call(native)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats_are_converted(native, dtype: torch.dtype) -> None:
    x, weight = randn(3, HIDDEN).to(dtype), matrix(native)
    assert same_bits(native.linear(x, weight), native.linear(x.float(), weight))
    assert same_bits(native.linear(x.T.contiguous().T, weight), native.linear(x, weight))
    assert torch.equal(native.embed(weight, IDS.int()), native.embed(weight, IDS))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_results_are_float32_whatever_the_default(kernels, dtype: torch.dtype) -> None:
    """Buffers of two bytes a number once let C++ write beyond them."""

    stack, x, head, table = stack_of(kernels), randn(2, HIDDEN), matrix(kernels), rotary(D)
    norm = randn(HIDDEN)

    def results():
        store = pages(kernels)
        yield from kernels.run_layers(stack, x, ROWS, store, (-1, 1))
        yield kernels.linear(x, head)
        yield kernels.rms_norm(x, norm, 1e-5)
        yield kernels.swiglu(x)
        yield kernels.rotate(Q, IDS, table)
        yield kernels.attend(Q, store, 0, ROWS, None)
        yield kernels.attend_block(Q, K, K, store, 0, ROWS, None, True)
        yield kernels.gumbel(1, 2, 3, IDS)
        yield kernels.embed(head, IDS)

    right = list(results())
    torch.set_default_dtype(dtype)
    try:
        found = list(results())
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(same_bits(one, other) for one, other in zip(found, right, strict=True))
