"""Rounds of an evaluation are those of the engine."""

from __future__ import annotations

import pytest
import torch

from outrider.train.fitting.evaluation import accepted_counts, simulated_rounds


def test_accepted_counts():
    ids = torch.tensor([[5, 6, 7, 8]])
    drafts = torch.tensor([[[6, 7], [7, 9], [8, 8], [1, 1]]])
    assert accepted_counts(drafts, ids).tolist() == [[2, 1, 1, 0]]


def test_walk_counts_as_the_engine_does():
    # Tokens 2..9 are an answer; 9 ends it. With the tip at 2, two drafts hold: 3, 4; bonus 5.
    accepted = [9, 9, 2, 9, 9, 0, 3, 9, 9, 9, 9]
    answer = [False, False, *[True] * 8, False]
    ended = [False] * 9 + [True, False]
    telemetry = simulated_rounds(accepted, answer, ended, 3)
    # Rounds start at 2 (2 kept), 5 (0 kept) and 6 (7, 8, 9 kept; 9 ends the answer: no bonus).
    assert telemetry.rounds == 3
    assert telemetry.accepted == 2 + 0 + 2
    assert telemetry.acceptance_length == pytest.approx(7 / 3)
    unfinished = simulated_rounds(accepted, answer, [False] * 11, 3)
    assert unfinished.rounds == 2
