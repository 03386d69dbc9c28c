"""Answers that repeat themselves."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

#: A row loops if this many tokens in sequence equal those a short period before.
LOOP_RUN: Final = 48
#: Longest period that counts as a loop.
LOOP_PERIOD: Final = 40


def looping_now(ids: Tensor, supervised: Tensor, upto: int) -> Tensor:
    """Which rows (int [n, T]) end in a loop at position ``upto`` (exclusive), bool [n]."""
    start = upto - LOOP_RUN - LOOP_PERIOD
    if start < 0:
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    recent = ids[:, start:upto]
    newest = recent[:, LOOP_PERIOD:]
    found = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for period in range(1, LOOP_PERIOD + 1):
        earlier = recent[:, LOOP_PERIOD - period : LOOP_PERIOD - period + LOOP_RUN]
        found |= (newest == earlier).all(1)
    return found & supervised[:, upto - LOOP_RUN : upto].all(1)


def ever_looping(ids: Tensor, supervised: Tensor) -> Tensor:
    """Which rows (int [n, T]) loop anywhere in an answer, bool [n]."""
    found = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for period in range(1, LOOP_PERIOD + 1):
        same = (ids[:, period:] == ids[:, :-period]) & supervised[:, period:]
        total = torch.nn.functional.pad(same.int().cumsum(1), (1, 0))
        if total.shape[1] > LOOP_RUN:
            found |= (total[:, LOOP_RUN:] - total[:, :-LOOP_RUN] == LOOP_RUN).any(1)
    return found
