"""The head's best token, drawn and greedy, and the noise behind it; and which kernels run."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
import torch
from kernel_toys import COUNTS, randn, raw

from outrider.kernels import select as selection
from outrider.kernels.composed import ComposedKernels
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN
from outrider.kernels.weights import raw_float
from outrider.types.errors import RequestError


@pytest.mark.parametrize("fmt", ["Q8_0", "Q4_1", "BF16"])
def test_argmax_is_that_of_the_logits(kernels, fmt):
    head = kernels.prepare([raw(fmt, 1003, 96)])
    x = randn(300, 96)
    for count in COUNTS:
        want = kernels.linear(x[:count], head).argmax(-1)
        assert torch.equal(kernels.argmax(x[:count], head), want)


def test_ties_go_to_the_lowest_id(kernels):
    rows = randn(1, 64).repeat(500, 1)
    rows[:37] = 0.0
    head = kernels.prepare([raw_float("w", rows)])
    x = rows[-1:].repeat(3, 1)
    assert kernels.argmax(x, head).tolist() == [37, 37, 37]
    assert kernels.argmax(-x, head).tolist() == [0, 0, 0]


@pytest.mark.parametrize("first", [0, 5, 1500, 1601, 2999])
def test_ties_go_to_the_lowest_id_whoever_finds_it(kernels, first):
    """A thread that is done with its share takes the end of another's: lower ids come later."""
    rows = torch.zeros(3000, 64)
    rows[first:] = randn(1, 64)
    head = kernels.prepare([raw_float("w", rows)])
    x = randn(1, 64).repeat(3, 1)
    for _ in range(20):
        assert kernels.argmax(x, head).tolist() == [first] * 3


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("fmt", ["Q8_0", "BF16", "F32"])
def test_a_row_that_is_not_finite_has_no_best(kernels, fmt, bad):
    """Neither its own NaN nor one of the head's may be passed over; its neighbours go on."""
    x = randn(9, 64)
    weights = raw_float("w", randn(1003, 64)) if fmt == "F32" else raw(fmt, 1003, 64)
    head = kernels.prepare([weights])
    want, heat = kernels.argmax(x, head), ([0.7] * 9, list(range(9)), list(range(9)))
    drawn = kernels.draw(x, head, *heat)
    x[2, 5] = bad
    for got, right in ((kernels.argmax(x, head), want), (kernels.draw(x, head, *heat), drawn)):
        assert got[2] == -1
        others = [0, 1, *range(3, 9)]
        assert torch.equal(got[others], right[others])


@pytest.mark.parametrize("place", [0, 7, 16, 1002])
def test_one_output_that_is_not_finite_is_enough(kernels, place):
    weights = randn(1003, 64)
    weights[place] = torch.nan
    head, x = kernels.prepare([raw_float("w", weights)]), randn(3, 64)
    assert kernels.argmax(x, head).tolist() == [-1] * 3
    assert kernels.draw(x, head, [0.5] * 3, [1] * 3, [4] * 3).tolist() == [-1] * 3


@pytest.mark.parametrize("count", [1, 2, 8, 17])
def test_draw_is_the_composed_one(kernels, count):
    head, x = kernels.prepare([raw("Q8_0", 3001, 96)]), randn(count, 96)
    temperatures = [0.3 + 0.2 * (i % 7) for i in range(count)]
    seeds = [2**63 + 12345 * i for i in range(count)]
    positions = [7 * i for i in range(count)]
    got = kernels.draw(x, head, temperatures, seeds, positions)
    assert torch.equal(got, ComposedKernels.draw(kernels, x, head, temperatures, seeds, positions))
    alone = [
        kernels.draw(x[i : i + 1], head, [temperatures[i]], [seeds[i]], [positions[i]])
        for i in range(count)
    ]
    assert torch.equal(got, torch.cat(alone))


def test_draws_from_equal_outputs_find_the_largest_noise(kernels):
    """Native kernels skip noise that cannot win, by a bound that is tight where noise is large."""
    count, size = 1500, 2003
    head, x = kernels.prepare([raw_float("w", torch.zeros(size, 32))]), torch.zeros(count, 32)
    ids = torch.arange(size)
    noise = torch.stack([kernels.gumbel(9, STREAM_TOKEN, at, ids) for at in range(count)])
    got = kernels.draw(x, head, [1.0] * count, [9] * count, list(range(count)))
    assert torch.equal(got, noise.argmax(-1))


def test_temperature_zero_draws_the_argmax(native):
    head, x = native.prepare([raw("Q8_0", 3001, 96)]), randn(4, 96)
    got = native.draw(x, head, [0.0, 1.0, 0.0, 1e-6], [1, 2, 3, 4], [5, 6, 7, 8])
    assert torch.equal(got[[0, 2, 3]], native.argmax(x, head)[[0, 2, 3]])


def test_draws_follow_the_distribution(native):
    weights = torch.tensor([[1.0], [2.0], [4.0], [1.0]]).log().repeat(1, 1)
    head, x = native.prepare([raw_float("w", weights)]), torch.ones(4000, 1)
    ids = native.draw(x, head, [1.0] * 4000, [99] * 4000, list(range(4000)))
    share = torch.bincount(ids, minlength=4) / 4000
    assert share.tolist() == pytest.approx([0.125, 0.25, 0.5, 0.125], abs=0.03)


@pytest.mark.parametrize("stream", [STREAM_TOKEN, STREAM_DRAFT])
def test_noise_is_the_reference(native, reference, stream):
    """Logarithms within 2 ulp in float64: a rounded float32 differs once in many millions."""
    ids = torch.arange(100_003)
    for seed, position in ((0, 0), (2**64 - 1, 2**31), (123456789, 17)):
        got = native.gumbel(seed, stream, position, ids)
        want = reference.gumbel(seed, stream, position, ids)
        assert (got != want).sum() <= 1
        assert (got - want).abs().max() <= 1e-6


def test_noise_does_not_depend_on_its_place(kernels):
    ids = torch.tensor([5, 49151, 0, 17, 2**31 + 5])
    whole = kernels.gumbel(3, 0, 9, torch.cat([torch.arange(40), ids]))
    for i, token in enumerate(ids):
        assert kernels.gumbel(3, 0, 9, token[None])[0] == whole[40 + i]


def test_noise_bound(native):
    """The head skips noise that could not win; the bound it uses holds at the largest word."""
    largest = -np.log(-np.log((2.0**32 - 0.5) / 2.0**32))
    assert largest < 23.0


def test_select_pins_a_path(native):
    path = native.name.removeprefix("cpu-")
    assert selection.select(threads=1, path=path).name == f"cpu-{path}"
    assert selection.select(path="reference").name == "reference"


@pytest.mark.parametrize(
    ("device", "path", "message"),
    [
        ("tpu", None, "device: must be auto or cpu, not 'tpu'"),
        ("", None, "device: must be auto or cpu, not ''"),
        (
            "cpu",
            "sse",
            "kernels: must be one of avx512vnni, avx2, portable, reference, not 'sse'",
        ),
        ("cpu", "", "kernels: must be one of avx512vnni, avx2, portable, reference, not ''"),
    ],
)
def test_select_refuses_unknown_names(device, path, message):
    with pytest.raises(RequestError) as caught:
        selection.select(device, path=path)
    assert str(caught.value) == message


def test_select_names_the_paths_that_run_here(native, monkeypatch):
    monkeypatch.setattr("outrider.kernels._native.paths", lambda: ["portable"])
    with pytest.raises(RequestError) as caught:
        selection.select(path="avx512vnni")
    assert str(caught.value) == (
        "kernels: avx512vnni cannot run on this machine; portable and reference can"
    )


def test_every_device_that_is_offered_is_served():
    """The command line offers these and no other."""
    assert selection.DEVICES == ("auto", "cpu")
    for device in selection.DEVICES:
        assert selection.select(device, path="reference").name == "reference"
    with pytest.raises(RequestError, match=r"^device: must be auto or cpu, not 'cuda'$"):
        selection.select("cuda", path="reference")


def test_select_without_the_extension(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "outrider.kernels.cpu.kernels", None)
    with caplog.at_level(logging.WARNING, "outrider"):
        assert selection.select().name == "reference"
    assert len(caplog.records) == 1
    assert "compiler" in caplog.text
    with pytest.raises(RequestError, match=r"^kernels: portable needs the native ones"):
        selection.select(path="portable")
