"""Random weights in every stored format, random stacks, and comparisons by bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.values import LayerWeights, RotaryTable, StackWeights
from outrider.kernels.weights import BLOCK_FORMATS, FLOAT_FORMATS, RawWeight, raw_float

COUNTS = (*range(1, 18), 33, 64, 300)
FORMATS = (*BLOCK_FORMATS, *FLOAT_FORMATS)

#: Largest scale, so that weights of every format are about as large.
SCALES = {"Q8_0": 1e-3, "Q4_0": 0.015, "Q4_1": 0.015, "Q5_0": 0.008, "Q5_1": 0.008}
SCALES |= {"Q4_K": 4e-4, "Q5_K": 2e-4, "Q6_K": 4e-5}

#: Offsets of the half-precision numbers in a block: its scale, and its minimum if it has one.
HALVES = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed))


def raw(fmt, n, k, seed=0):
    """A random matrix: any bits for the integers, sane halves for the scales."""
    if fmt in FLOAT_FORMATS:
        return raw_float("w", (randn(n, k, seed=seed) * 0.05).to(FLOAT_FORMATS[fmt]))
    weights, size = BLOCK_FORMATS[fmt]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (n * (k // weights), size), dtype=np.uint8)
    for at in HALVES[fmt]:
        scale = rng.uniform(SCALES[fmt] / 4, SCALES[fmt], len(blocks))
        scale *= rng.choice([-1, 1], len(blocks))
        scale = np.abs(scale) if fmt.endswith("K") else scale
        blocks[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return RawWeight("w", (n, k), fmt, torch.from_numpy(blocks.reshape(n, -1)))


def width(fmt, k):
    """``k`` rounded up to whole blocks of a format."""
    block = BLOCK_FORMATS[fmt][0] if fmt in BLOCK_FORMATS else 1
    return -(-k // block) * block


def rotary(d, positions=4096):
    angle = torch.arange(positions)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    return RotaryTable(angle.cos().contiguous(), angle.sin().contiguous())


def one_group(start, count, floor=0, pages=None):
    need = -(-(start + count) // PAGE_TOKENS)
    pages = list(reversed(range(need))) if pages is None else pages
    return Rows((RowGroup(start, count, pages, floor),))


def make_weights(
    kernels, fmt="Q4_1", layers=2, heads=6, kv=2, d=40, hidden=96, inner=160, **options
):
    """Weights of a random stack; ``options``: qk_norm, bias, window, causal."""
    hidden, inner = width(fmt, hidden), width(fmt, inner)
    wide, narrow, mixed = heads * d, kv * d, width(fmt, heads * d)
    assert mixed == wide, "heads times width must fill whole blocks"
    built = []
    for i in range(layers):
        seed = 100 * i
        shapes = ((wide, hidden), (narrow, hidden), (narrow, hidden))
        qkv = [raw(fmt, *shape, seed=seed + j) for j, shape in enumerate(shapes)]
        gate_up = [raw(fmt, inner, hidden, seed=seed + 10 + j) for j in range(2)]
        total = wide + 2 * narrow
        norm = options.get("qk_norm", False)
        built.append(
            LayerWeights(
                attn_norm=randn(hidden, seed=seed + 20),
                qkv=kernels.prepare(qkv, randn(total, seed=9) if options.get("bias") else None),
                q_norm=randn(d, seed=seed + 21) if norm else None,
                k_norm=randn(d, seed=seed + 22) if norm else None,
                out=kernels.prepare([raw(fmt, hidden, wide, seed=seed + 30)]),
                mlp_norm=randn(hidden, seed=seed + 23),
                gate_up=kernels.prepare(gate_up),
                down=kernels.prepare([raw(fmt, hidden, inner, seed=seed + 31)]),
                window=options.get("window"),
                causal=options.get("causal", True),
            )
        )
    return StackWeights(tuple(built), heads, kv, d, 1e-5, rotary(d))


def make_stack(kernels, **options):
    """A random stack, prepared; ``options`` as in ``make_weights``."""
    return kernels.prepare_stack(make_weights(kernels, **options))


def filled_store(kernels, length, kv, d, layers=1, spare=1, dtype="int8"):
    """A store whose pages, in reverse order, hold ``length`` random rows per layer."""
    pages = -(-length // PAGE_TOKENS) + spare
    store = kernels.allocate(layers, pages, kv, d, dtype)
    table = list(reversed(range(pages)))
    for layer in range(layers):
        k, v = randn(length, kv, d, seed=layer), randn(length, kv, d, seed=layer + 50)
        if length:
            kernels.write(store, layer, k, v, one_group(0, length, pages=table))
    return store, table


def same_bits(a, b):
    return a.shape == b.shape and bool((a.view(torch.int32) == b.view(torch.int32)).all())


def relative(a, b):
    """Root mean square of the difference, over that of ``b``."""
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def slices(n):
    """Parts of a batch of n rows to run alone: ends, single rows and an odd offset."""
    return {(0, n), (0, 1), (n - 1, n), (n // 2, n // 2 + 1), (n // 3, n - n // 4)}


def invariant(function, x, n):
    """Whether ``function`` gives every slice of the first n rows the bits that the batch gave."""
    whole = function(x[:n])
    return all(same_bits(function(x[a:b]), whole[a:b]) for a, b in slices(n) if a < b)


class SplitByCount(ReferenceKernels):
    """Broken on purpose: the order of the sum over inputs follows the number of rows."""

    def linear(self, x, weight):
        dense = weight.weight
        if x.shape[0] < 4:
            return x @ dense.T
        half = dense.shape[1] // 2
        return x[:, :half] @ dense[:, :half].T + x[:, half:] @ dense[:, half:].T


class ScaleByCall(ReferenceKernels):
    """Broken on purpose: keys and values are rounded on a scale that the rows of a call share."""

    def write(self, store, layer, k, v, rows):
        step = k.abs().max() / 127
        super().write(store, layer, (k / step).round() * step, v, rows)


def with_pages(rows, pages):
    return Rows(tuple(replace(group, pages=pages) for group in rows.groups))
