"""What makes drafts of states: the trimmed head, the Markov and the confidence head.

Shapes: V vocabulary, D draft vocabulary, H hidden, r Markov rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from outrider.config.drafter import DrafterConfig
from outrider.train.networks.layers import linear
from outrider.train.networks.target import (
    TorchTarget,
)


@dataclass(frozen=True)
class TrimmedHead:
    """The target's embedding, and its head cut to the draft vocabulary.

    Attributes:
        embedding: [V, H].
        weight: [D, H].
        d2t: int64 [D], target token of every draft token, ascending.
        t2d: int64 [V], draft token of every target token, -1 if it has none.
    """

    embedding: Tensor
    weight: Tensor
    d2t: Tensor
    t2d: Tensor


def trimmed_head(target: TorchTarget, d2t: Tensor) -> TrimmedHead:
    """Cut a target's head to tokens ``d2t``."""
    size, device = target.config.vocab_size, target.device
    t2d = torch.full((size,), -1, dtype=torch.int64, device=device)
    t2d[d2t] = torch.arange(len(d2t), dtype=torch.int64, device=device)
    return TrimmedHead(target.embedding, target.head[d2t].contiguous(), d2t, t2d)


class MarkovHead(nn.Module):
    """Bias of a draft's logits by the token before it: W2 W1[x], optionally gated by the state."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        rank = config.markov_rank
        self.markov_w1 = nn.Embedding(config.vocab_size, rank, dtype=torch.float32)
        self.markov_w2 = nn.Linear(rank, config.draft_vocab_size, bias=False, dtype=torch.float32)
        gated = config.markov_kind == "gated"
        self.gate_proj = (
            nn.Linear(config.hidden_size + rank, rank, dtype=torch.float32) if gated else None
        )
        nn.init.normal_(self.markov_w1.weight, std=0.02)
        nn.init.normal_(self.markov_w2.weight, std=0.02)

    def code(self, previous: Tensor) -> Tensor:
        """W1 rows of tokens, [..] to [.., r]."""
        code: Tensor = self.markov_w1(previous)
        return code

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Bias [.., D] of states [.., H] after tokens [..]."""
        code = self.code(previous).to(hidden.dtype)
        if self.gate_proj is not None:
            gate = torch.sigmoid(linear(torch.cat([hidden, code], -1), self.gate_proj))
            code = gate * code
        return linear(code, self.markov_w2)


class ConfidenceHead(nn.Module):
    """Estimates the acceptance of a draft, given that those before it were accepted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1, dtype=torch.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Logit of the acceptance, float32 [..] of features [.., width]."""
        return F.linear(features.float(), self.proj.weight, self.proj.bias)[..., 0]
