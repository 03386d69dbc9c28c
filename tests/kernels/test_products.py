"""Products, look-ups and row-wise operators: against the reference, and row by row."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import (
    COUNTS,
    FORMATS,
    SplitByCount,
    invariant,
    randn,
    raw,
    relative,
    same_bits,
    width,
)

#: Relative error (RMS) of a product of the native kernels. Activations are int8 per block of 32
#: under quantised weights: their rounding error is uniform in half a step, about 0.7 % of normal
#: inputs. Float weights see float32 inputs.
PRODUCT_BOUND = {"F32": 1e-6, "F16": 1e-6, "BF16": 1e-6}
QUANTISED_BOUND = 0.011

#: Relative error (RMS) of the packed weights themselves.
WEIGHT_BOUND = {"Q4_K": 3e-4, "Q5_K": 3e-4, "Q6_K": 5e-3}


@pytest.mark.parametrize("fmt", FORMATS)
def test_product_matches_reference(native, reference, fmt):
    n, k = 45, width(fmt, 224)
    parts = [raw(fmt, n, k, seed=1), raw(fmt, 19, k, seed=2)]
    bias, x = randn(n + 19, seed=3), randn(9, k, seed=4)
    got = native.linear(x, native.prepare(parts, bias))
    want = reference.linear(x, reference.prepare(parts, bias))
    assert relative(got, want) < PRODUCT_BOUND.get(fmt, QUANTISED_BOUND)


@pytest.mark.parametrize("fmt", FORMATS)
def test_embedding_shows_the_packed_weights(native, reference, fmt):
    part = raw(fmt, 50, width(fmt, 96))
    ids = torch.tensor([0, 49, 17, 17, 16, 15])
    got = native.embed(native.prepare([part]), ids)
    want = reference.embed(reference.prepare([part]), ids)
    if fmt in WEIGHT_BOUND:
        assert 0 < relative(got, want) < WEIGHT_BOUND[fmt]
    else:
        assert torch.equal(got, want)


def test_embedding_spans_parts(native, reference):
    parts = [raw("Q8_0", 21, 64, seed=1), raw("F32", 5, 64, seed=2)]
    ids = torch.arange(26)
    want = reference.embed(reference.prepare(parts), ids)
    assert torch.equal(native.embed(native.prepare(parts), ids), want)


def test_embedding_refuses_unknown_ids(native):
    table = native.prepare([raw("Q8_0", 20, 64)])
    with pytest.raises(IndexError, match=r"0 \.\. 19"):
        native.embed(table, torch.tensor([20]))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("n", [16, 45])
def test_product_rows_are_invariant(kernels, fmt, n):
    k = width(fmt, 224)
    weight = kernels.prepare([raw(fmt, n, k)], randn(n, seed=2))
    x = randn(max(COUNTS), k)
    for count in COUNTS if fmt in ("Q4_1", "Q8_0", "BF16") else (2, 7, 8, 9, 17):
        assert invariant(lambda rows: kernels.linear(rows, weight), x, count), count


def test_wide_inputs_are_invariant(native):
    weight = native.prepare([raw("Q4_0", 33, 4128)])
    x = randn(33, 4128)
    for count in (2, 8, 15, 16, 33):
        assert invariant(lambda rows: native.linear(rows, weight), x, count)


def test_invariance_gate_sees_a_split_by_row_count():
    broken = SplitByCount()
    weight = broken.prepare([raw("F32", 64, 513)])
    assert not invariant(lambda rows: broken.linear(rows, weight), randn(8, 513), 8)


@pytest.mark.parametrize("fmt", ["Q4_0", "Q4_1", "Q8_0", "Q5_1"])
def test_integer_dots_are_exact(native, reference, fmt):
    """With inputs that int8 holds exactly, only the order of float sums is left."""
    weight = raw(fmt, 40, 160)
    x = torch.randint(-127, 128, (11, 160), generator=torch.Generator().manual_seed(1)).float()
    x[:, ::32] = 127.0
    got = native.linear(x, native.prepare([weight]))
    assert relative(got, reference.linear(x, reference.prepare([weight]))) < 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_values_stay_in_their_row(native, bad):
    weight = native.prepare([raw("Q4_1", 45, 96), raw("F32", 7, 96)])
    for count in (3, 9, 20):
        x = randn(count, 96)
        clean = native.linear(x, weight)
        x[1, 40] = bad
        got = native.linear(x, weight)
        assert not got[1].isfinite().any() or not got[1, :45].isfinite().any()
        keep = [i for i in range(count) if i != 1]
        assert same_bits(got[keep], clean[keep])
        assert same_bits(native.linear(x[1:2], weight), got[1:2])


def test_outputs_are_all_written(native, monkeypatch):
    """Outputs start as NaN; none survives, in widths that fill no tile."""
    empty = torch.empty
    poisoned = lambda *shape, **kw: empty(*shape, **kw).fill_(-1 if "dtype" in kw else torch.nan)  # noqa: E731
    monkeypatch.setattr(torch, "empty", poisoned)
    for count in (1, 5, 8, 17):
        x = randn(count, 96)
        assert native.linear(x, native.prepare([raw("Q4_1", 45, 96)])).isfinite().all()
        assert native.swiglu(randn(count, 70)).isfinite().all()
        assert (
            native.embed(native.prepare([raw("Q8_0", 9, 96)]), torch.zeros(count).long())
            .isfinite()
            .all()
        )
        assert (native.argmax(x, native.prepare([raw("Q8_0", 45, 96)])) >= 0).all()


@pytest.mark.parametrize("cols", [16, 40, 96, 577])
def test_norm(kernels, reference, cols):
    x, weight = randn(33, cols) * 3, randn(cols, seed=1)
    got = kernels.rms_norm(x, weight, 1e-5)
    assert relative(got, reference.rms_norm(x, weight, 1e-5)) < 1e-6
    for count in (1, 2, 7, 8, 9, 33):
        assert invariant(lambda rows: kernels.rms_norm(rows, weight, 1e-5), x, count)


@pytest.mark.parametrize("cols", [16, 50, 96])
def test_swiglu(kernels, reference, cols):
    x = randn(33, 2 * cols) * 20
    assert relative(kernels.swiglu(x), reference.swiglu(x)) < 1e-6
    for count in (1, 3, 8, 33):
        assert invariant(kernels.swiglu, x, count)


def test_swiglu_extremes(native):
    gate = torch.tensor([[-1e30, -200.0, -90.0, 90.0, 1e30, torch.nan, 0.0, 1.0]])
    out = native.swiglu(torch.cat([gate, torch.ones_like(gate)], dim=1))[0]
    assert out[:3].abs().max() < 1e-30
    assert out[3:5].tolist() == pytest.approx([90.0, 1e30])
    assert out[5].isnan()
    assert out[6] == 0.0


@pytest.mark.parametrize("d", [32, 40, 64, 80, 128])
def test_rotation_is_the_reference_to_the_bit(native, reference, d):
    from kernel_toys import rotary

    x, positions = randn(9, 3, d), torch.tensor([0, 1, 5, 100, 7, 7, 4000, 2, 3])
    assert same_bits(
        native.rotate(x, positions, rotary(d)), reference.rotate(x, positions, rotary(d))
    )
