"""Token sequences that are forced on a conversation: the chat template's, and given turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.kernels.tensors import token_ids
from outrider.train.config import GenerateConfig
from outrider.train.data.chat_frame import Frame, Opening


@dataclass(frozen=True)
class Scripts:
    """Forced token sequences.

    Attributes:
        tokens: int64 [n, longest], padded.
        lengths: int64 [n].
        answers: bool [n], whether the assistant speaks after it.
        header: index of the script from a user turn to its answer.
        follow_ups: indices of scripts from an answer to the next user turn.
        starts: per category, indices of scripts that start a row.
    """

    tokens: Tensor
    lengths: Tensor
    answers: Tensor
    header: int
    follow_ups: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]


def scripts_of(frame: Frame, longest: int, device: torch.device) -> Scripts:
    """Lay out every script of a frame; given turns are cut to fit ``longest`` tokens."""
    tail = (frame.end, *frame.header)
    sequences: list[tuple[int, ...]] = [frame.header]
    answers = [True]

    def lay_out(before: tuple[int, ...], openings: Sequence[Opening]) -> tuple[int, ...]:
        """Append the scripts of openings; their indices."""
        room = longest - len(before) - len(tail)
        first = len(sequences)
        for opening in openings:
            after = tail if opening.whole else ()
            sequences.append(before + opening.tokens[:room] + after)
            answers.append(opening.whole)
        return tuple(range(first, len(sequences)))

    follow_ups = lay_out(frame.again, frame.follow_ups)
    starts = tuple(lay_out(frame.prefix, openings) for openings in frame.openers)
    width = max(map(len, sequences))
    padded = [list(s) + [frame.end] * (width - len(s)) for s in sequences]
    return Scripts(
        torch.tensor(padded, dtype=torch.int64, device=device),
        token_ids([len(s) for s in sequences], device),
        torch.tensor(answers, dtype=torch.bool, device=device),
        0,
        follow_ups,
        starts,
    )


def start_rows(
    scripts: Scripts, config: GenerateConfig, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Draw the start script (int64 [B]) and the category (uint8 [B]) of a batch.

    The first category gets ``free_share`` of the rows if others exist; the rest is even.
    """
    present = [index for index, starts in enumerate(scripts.starts) if starts]
    weights = torch.ones(len(present), dtype=torch.float32, device="cpu")
    if present[0] == 0 and len(present) > 1:
        share = config.free_share
        weights[0] = share / (1 - share) * (len(present) - 1) if share < 1 else 1e9
    drawn = torch.multinomial(weights, config.batch, replacement=True)
    start = torch.zeros_like(drawn)
    category = torch.zeros_like(drawn, dtype=torch.uint8)
    for index, name in enumerate(present):
        chosen = drawn == index
        options = token_ids(scripts.starts[name])
        start[chosen] = options[torch.randint_like(drawn[chosen], len(options))]
        category[chosen] = name
    return start.to(device), category.to(device)
