"""Orthogonalised updates, and the schedule of rates."""

from __future__ import annotations

import pytest
import torch

from outrider.train.fitting.optimiser import orthogonalise, schedule


def test_orthogonalised_matrices():
    torch.manual_seed(0)
    for shape in ((3, 24, 40), (2, 40, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_schedule():
    assert schedule(0.02, 0.04, 0.1) == pytest.approx(0.5)
    assert schedule(0.04, 0.04, 0.1) == pytest.approx(1.0)
    assert schedule(1.0, 0.04, 0.1) == pytest.approx(0.1)
    rates = [schedule(x / 50, 0.04, 0.1) for x in range(2, 51)]
    assert rates == sorted(rates, reverse=True)
