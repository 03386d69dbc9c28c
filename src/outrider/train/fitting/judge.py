"""The judge of a training: acceptance on held-out conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn

from outrider.kernels.tensors import index_range
from outrider.train.config import TrainConfig
from outrider.train.data.chat_frame import (
    CATEGORIES,
)
from outrider.train.data.conversations import Conversations
from outrider.train.fitting.evaluation import Evaluation, evaluate
from outrider.train.networks.heads import TrimmedHead
from outrider.train.networks.network import new_network
from outrider.train.networks.target import TorchTarget

#: Held-out rows of the evaluations during training; the final one uses all.
QUICK_ROWS: Final = 96
#: Conversations that are judged together, and the same on a GPU.
JUDGED: Final = 2
GPU_JUDGED: Final = 8


class Judge:
    """Evaluates a network's weights on held-out greedy rows, in an uncompiled twin of it."""

    def __init__(
        self, config: TrainConfig, target: TorchTarget, head: TrimmedHead, heldout: Conversations
    ) -> None:
        self._target = target
        self._head = head
        self._rows = heldout.select(heldout.greedy)
        self._twin = new_network(config.kind, target.config, config.shape).to(target.device)
        self._batch = GPU_JUDGED if target.device.type == "cuda" else JUDGED

    def quick(self, network: nn.Module) -> Evaluation:
        """Acceptance on some of the rows."""
        count = min(QUICK_ROWS, len(self._rows))
        return self._judge(network.state_dict(), self._rows.select(index_range(0, count)))

    def full(self, weights: Mapping[str, Tensor]) -> Evaluation:
        """Acceptance on all rows with a network's weights."""
        return self._judge(weights, self._rows)

    def _judge(self, weights: Mapping[str, Tensor], rows: Conversations) -> Evaluation:
        twin, target = self._twin, self._target
        twin.load_state_dict(weights)
        return evaluate(twin, target, self._head, rows, twin.taps, CATEGORIES, self._batch)
