"""What a training step minimises."""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.train.config import OptimConfig
from outrider.train.fitting.batches import Batch, labels_of
from outrider.train.fitting.loss import (
    confidence_loss,
    cross_entropy,
    distances,
    pace_weights,
    position_weights,
    teacher_of,
    weighted_mean,
)
from outrider.train.networks.heads import TrimmedHead
from outrider.train.networks.network import Network
from outrider.train.networks.target import TorchTarget


class Objective:
    """The loss of a batch.

    Attributes:
        parts: float32 [3], the last batch's cross-entropy, total variation and confidence loss.
    """

    def __init__(
        self, network: Network, target: TorchTarget, head: TrimmedHead, config: OptimConfig
    ) -> None:
        self._network = network
        self._target = target
        self._head = head
        self._config = config
        self.parts = torch.zeros(3, dtype=torch.float32, device=target.device)
        self._cross_entropy, self._distances = cross_entropy, distances
        if config.compile:
            self._cross_entropy = torch.compile(cross_entropy, dynamic=False)
            self._distances = torch.compile(distances, dynamic=False)

    def __call__(self, batch: Batch, mixed: bool) -> Tensor:
        """Cross-entropy alone, or mixed with total variation and the confidence loss."""
        c, network, head = self._config, self._network, self._head
        tapped_only = not mixed and bool(network.taps)
        states = self._target.states(batch.ids, network.taps, tapped_only=tapped_only)
        labels = labels_of(batch, network.drafts)
        hidden = network.rows(states, batch.ids, batch.anchors, head.embedding)
        logits = network.logits(hidden, labels.previous, head.weight).flatten(0, 2)
        tokens = head.t2d[labels.tokens]
        # A token outside the draft vocabulary cannot be drafted; it teaches nothing.
        live = labels.live & (tokens >= 0)
        wanted = tokens.clamp(min=0).flatten()
        if not mixed:
            each = self._cross_entropy(logits, wanted)
            ce = weighted_mean(each, self._weights((-each).exp(), live))
            self.parts[0].copy_(ce.detach())
            return ce
        with torch.no_grad():
            teacher = teacher_of(self._target, states.hidden, head.weight)
        places = torch.arange(len(batch.ids), dtype=torch.int64, device=wanted.device)
        offset = places * batch.ids.shape[1]
        at = (labels.at + offset[:, None, None]).flatten()
        each_ce, each_tv = self._distances(logits, wanted, teacher, at)
        weights = self._weights(1.0 - each_tv, live)
        ce, tv = weighted_mean(each_ce, weights), weighted_mean(each_tv, weights)
        loss = c.ce_weight * ce + 2.0 * c.tv_weight * tv
        confidence = network.confidence(hidden, labels.previous)
        if confidence is not None:
            bce = weighted_mean(confidence_loss(confidence.flatten(), each_tv), weights)
            loss = loss + c.confidence_weight * bce
            self.parts[2].copy_(bce.detach())
        self.parts[0].copy_(ce.detach())
        self.parts[1].copy_(tv.detach())
        return loss

    def _weights(self, accepted: Tensor, live: Tensor) -> Tensor:
        """Weights [B N K] of drafts with acceptances [B N K], ``live`` being bool [B, N, K]."""
        c = self._config
        if not c.pace:
            return position_weights(live, c.decay).flatten()
        return pace_weights(accepted.detach().view(live.shape), live, c.pace).flatten()
