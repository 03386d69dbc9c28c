"""Losses of drafts against the target's tokens and the target's distribution.

Every term is a mean over live drafts weighted by w_k = exp(-k / decay), divided by the sum of the
weights (arXiv 2602.06036; DSpark, arXiv 2607.05147).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from outrider.train.networks.target import TorchTarget

#: Positions whose logits over the whole vocabulary are in memory together, twice.
TEACHER_ROWS: Final = 1024
#: The same on a GPU.
GPU_TEACHER_ROWS: Final = 8192


@dataclass(frozen=True)
class Teacher:
    """The target's distribution at every position of a batch, restricted to the draft vocabulary.

    Attributes:
        logits: [B S, D].
        normaliser: float32 [B S], log-sum-exp over the whole vocabulary.
    """

    logits: Tensor
    normaliser: Tensor


def position_weights(live: Tensor, decay: float) -> Tensor:
    """float32 [.., K]: exp(-k / decay) where live, else 0."""
    k = torch.arange(live.shape[-1], device=live.device, dtype=torch.float32)
    return live * torch.exp(-k / decay)


def pace_weights(accepted: Tensor, live: Tensor, pace: float) -> Tensor:
    """How many accepted drafts hang on each draft of a block, relative to a perfect drafter's.

    The gradient of the expected length of an accepted run by the logarithm of each draft's
    acceptance is the expected length of the run from there on (the idea of D-PACE). Blocks whose
    first drafts fail do not spend effort on the last ones.

    Args:
        accepted: acceptance of each draft if those before it are accepted, float32 [.., K].
        live: bool [.., K].
        pace: an acceptance a counts as 1 - pace + pace a; 0 gives 1 for the whole block but its
            end, where fewer drafts hang.
    """
    kept = ((1.0 - pace + pace * accepted) * live).cumprod(-1)
    return kept.flip(-1).cumsum(-1).flip(-1) / live.shape[-1]


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Mean by weight; 0 without any."""
    return (values * weights).sum() / weights.sum().clamp_min(1e-6)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """float32 [n] of logits [n, D] and labels int64 [n]."""
    return F.cross_entropy(logits.float(), labels, reduction="none")


def distances(
    logits: Tensor, labels: Tensor, teacher: Teacher, at: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy, and total variation 0.5 |p_draft - p_target|_1 over the whole vocabulary.

    The draft gives no mass to tokens outside its vocabulary, so what the target has there counts
    in full.

    Args:
        logits: [n, D].
        labels: int64 [n].
        teacher: the target's distributions.
        at: int64 [n], row of the teacher for each.

    Returns:
        Both float32 [n].
    """
    log_draft = logits.float().log_softmax(-1)
    target = (teacher.logits[at].float() - teacher.normaliser[at, None]).exp()
    outside = (1.0 - target.sum(-1)).clamp_min(0.0)
    total = 0.5 * ((log_draft.exp() - target).abs().sum(-1) + outside)
    chosen = log_draft.gather(-1, labels[:, None])[:, 0]
    return -chosen, total


def confidence_loss(confidence: Tensor, variation: Tensor) -> Tensor:
    """Binary cross-entropy [n] of acceptance logits against 1 - total variation."""
    return F.binary_cross_entropy_with_logits(
        confidence, (1.0 - variation).detach().clamp(0.0, 1.0), reduction="none"
    )


def teacher_of(target: TorchTarget, hidden: Tensor, head: Tensor) -> Teacher:
    """The target's distributions at states [B, S, H]; ``head`` is [D, H]."""
    flat = hidden.flatten(0, 1)
    # Logits over the whole vocabulary are the largest tensor of a step.
    chunk = GPU_TEACHER_ROWS if flat.is_cuda else TEACHER_ROWS
    parts = [_log_sum_exp(part, target.head) for part in torch.split(flat, chunk)]
    return Teacher(F.linear(flat, head), torch.cat(parts))


def _log_sum_exp(hidden: Tensor, head: Tensor) -> Tensor:
    return F.linear(hidden, head).float().logsumexp(-1)
