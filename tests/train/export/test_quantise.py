"""The quantiser of Q4_1 against GGUF's own, and on blocks with nothing to choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from outrider.kernels.weights import RawWeight
from outrider.train.export import quantise
from outrider.train.export.quantise import PIECE, _search, quantize_q4_1, quantize_q8_0


def read_back(data, shape):
    assert data.dtype == torch.uint8
    assert data.shape == (shape[0], shape[1] // 32 * 20)
    return RawWeight("", tuple(shape), "Q4_1", data).float()


def squared_errors(read, weight):
    """By block, [n]."""
    return (read - weight).square().view(-1, 32).sum(1)


def plain(weight):
    """GGUF's own rounding between minimum and maximum."""
    data = torch.from_numpy(quantize(weight.numpy(), GGMLQuantizationType.Q4_1))
    return read_back(data, weight.shape)


def random_weight(tails):
    torch.manual_seed(0)
    weight = torch.randn(40, 96) * 0.05
    return weight * torch.rand(40, 96).clamp_min(0.05) ** -1 if tails else weight


@pytest.mark.parametrize("tails", [False, True])
def test_less_error_than_plain_rounding(tails):
    weight = random_weight(tails)
    error = squared_errors(read_back(quantize_q4_1(weight), weight.shape), weight)
    reference = squared_errors(plain(weight), weight)
    assert error.sum() < 0.85 * reference.sum()
    # Plain rounding chooses integers before it rounds scales to float16, so it may be luckier.
    assert (error <= reference * 1.01).all()


def test_scales_are_refined(monkeypatch):
    """Least squares gain on top of clipping."""
    weight = random_weight(False)
    refined = squared_errors(read_back(quantize_q4_1(weight), weight.shape), weight)
    monkeypatch.setattr(quantise, "REFINEMENTS", 0)
    clipped = squared_errors(read_back(quantize_q4_1(weight), weight.shape), weight)
    assert (refined <= clipped).all()
    assert refined.sum() < 0.98 * clipped.sum()


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 0.1, -0.1, 1e-9])
def test_constant_blocks(value):
    """All integers are 0 and the minimum is the float16 nearest to the value."""
    weight = torch.full((2, 64), value)
    data = quantize_q4_1(weight)
    assert torch.equal(read_back(data, weight.shape), weight.half().float())
    assert not data.view(-1, 20)[:, 4:].any()


def test_representable_blocks_are_exact():
    torch.manual_seed(1)
    q = torch.randint(0, 16, (8, 64)).float()
    q[:, ::32], q[:, 1::32] = 0.0, 15.0
    weight = q * 0.25 - 1.5
    assert torch.equal(read_back(quantize_q4_1(weight), weight.shape), weight)


@pytest.mark.parametrize("end", [1, -1])
def test_either_end_of_a_range_is_clipped(end, monkeypatch):
    """An outlier does not stretch the steps of a block with many values within."""
    monkeypatch.setattr(quantise, "REFINEMENTS", 0)
    weight = torch.linspace(-1, 1, 32)[None].repeat(2, 1)
    weight[:, 7] = end * 1.5
    error = squared_errors(read_back(quantize_q4_1(weight), weight.shape), weight)
    assert (error < 0.98 * squared_errors(plain(weight), weight)).all()


def test_found_scales_are_stored_as_they_were_judged():
    scale, minimum = _search(random_weight(True).view(-1, 32).numpy())
    for values in (scale, minimum):
        assert (values.astype(np.float16).astype(np.float32) == values).all()


def test_pieces_join():
    torch.manual_seed(2)
    weight = torch.randn(PIECE // 2 + 3, 64)
    whole = quantize_q4_1(weight)
    assert torch.equal(whole[-5:], quantize_q4_1(weight[-5:]))
    assert torch.equal(whole[:5], quantize_q4_1(weight[:5]))


@pytest.mark.parametrize("form", [quantize_q4_1, quantize_q8_0])
def test_rows_fill_blocks(form):
    with pytest.raises(ValueError, match="rows of 40"):
        form(torch.zeros(2, 40))
