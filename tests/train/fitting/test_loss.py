"""Losses against plain restatements."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.train.fitting.loss import (
    Teacher,
    distances,
    pace_weights,
    position_weights,
    weighted_mean,
)


def test_distances_over_the_whole_vocabulary():
    torch.manual_seed(0)
    size, kept = 12, torch.tensor([1, 4, 5, 9])
    target, draft = torch.randn(3, size) * 2, torch.randn(5, 4)
    teacher = Teacher(target[:, kept], target.logsumexp(-1))
    labels, at = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([0, 1, 2, 0, 1])
    ce, tv = distances(draft, labels, teacher, at)
    wide = torch.full((5, size), -torch.inf)
    wide[:, kept] = draft
    p, q = target.softmax(-1)[at], wide.softmax(-1)
    assert torch.allclose(tv, 0.5 * (p - q).abs().sum(-1), atol=1e-5)
    assert torch.allclose(tv, 1 - torch.minimum(p, q).sum(-1), atol=1e-5)
    assert torch.allclose(ce, -draft.log_softmax(-1).gather(1, labels[:, None])[:, 0])


def test_weights():
    live = torch.tensor([[True, True, False]])
    weights = position_weights(live, 4.0)
    assert torch.allclose(weights, torch.tensor([[1.0, math.exp(-0.25), 0.0]]))
    mean = weighted_mean(torch.tensor([[2.0, 2.0, 99.0]]), weights)
    assert float(mean) == pytest.approx(2.0)
    assert float(weighted_mean(torch.ones(2), torch.zeros(2))) == 0.0


def test_pace_is_the_gradient_of_the_accepted_length():
    torch.manual_seed(0)
    log_accepted = torch.rand(3, 4).log().requires_grad_()
    live = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    length = (log_accepted.exp() * live).cumprod(-1).sum()
    length.backward()
    weights = pace_weights(log_accepted.detach().exp(), live, 1.0)
    assert torch.allclose(4 * weights, log_accepted.grad, atol=1e-6)
    assert (weights[~live] == 0).all()
    slower = pace_weights(torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool), 0.5)
    assert torch.allclose(4 * slower, torch.tensor([[15.0, 7.0, 3.0, 1.0]]) / 16)
