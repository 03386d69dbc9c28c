"""Answers that repeat themselves."""

from __future__ import annotations

import torch
from tiny_training import V

from outrider.train.data.loops import LOOP_RUN, ever_looping, looping_now


def test_loops_are_found():
    torch.manual_seed(1)
    free = torch.randint(V, (1, 160))
    looping = free.clone()
    looping[0, 60:140] = torch.tensor([1, 2, 3, 4, 5]).repeat(16)
    ids = torch.cat([free, looping])
    answer = torch.ones(2, 160, dtype=torch.bool)
    assert ever_looping(ids, answer).tolist() == [False, True]
    assert looping_now(ids, answer, 140).tolist() == [False, True]
    assert looping_now(ids, answer, 159).tolist() == [False, False]
    answer[1, 60 + LOOP_RUN - 10 : 140] = False
    assert ever_looping(ids, answer).tolist() == [False, False]
