"""The tokens that a drafter can draft: those that answers use most."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.config.model import ModelConfig
from outrider.train.data.conversations import Conversations


def draft_vocabulary(rows: Conversations, size: int, target: ModelConfig) -> Tensor:
    """The ``size`` tokens that answers use most, end tokens among them: int64, ascending."""
    used = rows.ids[rows.supervised].long()
    counts = torch.bincount(used, minlength=target.vocab_size)
    counts[list(target.eos_ids)] = counts.max() + 1
    return counts.topk(min(size, target.vocab_size)).indices.sort().values


def coverage(rows: Conversations, d2t: Tensor) -> float:
    """Share of answer tokens that are in a draft vocabulary."""
    return float(torch.isin(rows.ids[rows.supervised].long(), d2t).float().mean())
