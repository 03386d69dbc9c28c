"""Acceptance by real rounds: the drafter chases the target's own greedy continuation.

A round starts at the tip, drafts K tokens from what is committed before it, and keeps the longest
prefix that the target would have written; the target's own next token is the new tip. To go through
a finished greedy answer so is the same as decoding it with the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor

from outrider.kernels.tensors import index_range, token_ids
from outrider.train.data.conversations import Conversations
from outrider.train.networks.heads import TrimmedHead
from outrider.train.networks.target import TargetStates, TorchTarget
from outrider.types.telemetry import Telemetry


class Simulated(Protocol):
    """The part of a drafter network that an evaluation runs."""

    def simulate(
        self, states: TargetStates, ids: Tensor, anchors: Tensor, head: TrimmedHead
    ) -> Tensor:
        """Greedy drafts int64 [B, N, K] after anchors int64 [B, N]."""


@dataclass(frozen=True)
class Acceptance:
    """Rounds of a set of answers.

    Attributes:
        tau: tokens a round, the target's own included.
        rounds: how many.
        positions: share of rounds whose draft k was kept, by k.
    """

    tau: float
    rounds: int
    positions: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """Acceptance over all answers, over those that do not repeat themselves, and by category."""

    overall: Acceptance
    not_looping: Acceptance
    categories: tuple[tuple[str, Acceptance], ...]

    def lines(self) -> list[str]:
        """One line of text for each set of answers."""
        named = [("all", self.overall), ("not looping", self.not_looping), *self.categories]
        return [
            f"{name:12} tau {a.tau:.3f} over {a.rounds} rounds, kept by position "
            + " ".join(f"{p:.3f}" for p in a.positions)
            for name, a in named
        ]

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "all": asdict(self.overall),
            "not_looping": asdict(self.not_looping),
            "categories": {name: asdict(acceptance) for name, acceptance in self.categories},
        }


def accepted_counts(drafts: Tensor, ids: Tensor) -> Tensor:
    """How many drafts int64 [B, N, K] in a row equal the tokens after anchors 0 .. N - 1."""
    n, k = drafts.shape[1:]
    row = torch.arange(n, dtype=torch.int64, device=ids.device)
    position = row[:, None] + 1 + torch.arange(k, dtype=torch.int64, device=ids.device)
    inside = position < ids.shape[1]
    actual = ids[:, position.clamp(max=ids.shape[1] - 1)]
    return ((drafts == actual) & inside).long().cumprod(-1).sum(-1)


def simulated_rounds(
    accepted: Sequence[int], supervised: Sequence[bool], ended: Sequence[bool], k: int
) -> Telemetry:
    """Go through the answers of one conversation round by round.

    Args:
        accepted: how many drafts would be kept with the tip at each position.
        supervised: which positions hold answer tokens.
        ended: which positions hold a token that ends an answer.
        k: drafts a round. A round that an unfinished answer is too short to judge is left out.
    """
    telemetry = Telemetry()
    position, length = 0, len(supervised)
    while position < length:
        if not supervised[position]:
            position += 1
            continue
        stop = position
        while stop + 1 < length and supervised[stop + 1]:
            stop += 1
        while position < stop and (ended[stop] or position + k < stop):
            kept = min(accepted[position], stop - position)
            # The end token, accepted as a draft, leaves no room for the target's own token.
            telemetry.record(min(k, stop - position), min(kept, stop - position - 1))
            position += kept + 1
        position = stop + 1
    return telemetry


def evaluate(
    network: Simulated,
    target: TorchTarget,
    head: TrimmedHead,
    rows: Conversations,
    taps: Sequence[int],
    names: Sequence[str],
    batch: int = 8,
) -> Evaluation:
    """Simulate every round of greedy conversations.

    Args:
        network: the drafter.
        target: the target.
        head: its trimmed head.
        rows: conversations with greedy answers.
        taps: target layers that the drafter reads.
        names: category names.
        batch: conversations at a time.
    """
    per_row: list[Telemetry] = []
    for start in range(0, len(rows), batch):
        part = rows.select(index_range(start, min(start + batch, len(rows))))
        ids = part.ids.to(target.device, torch.int64)
        k, accepted = _accepted(network, target, head, ids, taps)
        ended = torch.isin(ids, token_ids(target.config.eos_ids, ids.device))
        table = zip(accepted.tolist(), part.supervised.tolist(), ended.tolist(), strict=True)
        per_row += [simulated_rounds(a, s, e, k) for a, s, e in table]
    keep = [not loops for loops in rows.looping.tolist()]
    category = rows.category.tolist()
    return Evaluation(
        _total(per_row),
        _total([t for t, kept in zip(per_row, keep, strict=True) if kept]),
        tuple(
            (name, _total([t for t, c in zip(per_row, category, strict=True) if c == index]))
            for index, name in enumerate(names)
            if index in category
        ),
    )


@torch.no_grad()
def _accepted(
    network: Simulated, target: TorchTarget, head: TrimmedHead, ids: Tensor, taps: Sequence[int]
) -> tuple[int, Tensor]:
    """Drafts a round, and how many are kept with the tip at each position, int64 [B, S]."""
    states = target.states(ids, taps)
    anchors = torch.arange(ids.shape[1], dtype=torch.int64, device=ids.device).expand(len(ids), -1)
    drafts = network.simulate(states, ids, anchors, head)
    return drafts.shape[-1], accepted_counts(drafts, ids)


def _total(parts: Sequence[Telemetry]) -> Acceptance:
    total = Telemetry()
    for part in parts:
        total.add(part)
    rounds = max(total.rounds, 1)
    shares = tuple(count / rounds for count in total.accepted_per_position)
    return Acceptance(total.acceptance_length, total.rounds, shares)
