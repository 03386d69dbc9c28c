"""The target writes its own training data: user turns, answers, further turns."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import torch

from outrider.config.memory import Memory
from outrider.train.config import GenerateConfig
from outrider.train.data.chat_frame import Frame
from outrider.train.data.conversations import Conversations, concatenate
from outrider.train.data.scripts import start_rows
from outrider.train.data.writer import ConversationWriter
from outrider.train.networks.target import TorchTarget
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent

#: After so many batches and rows of which none could be kept, none will be.
VAIN_BATCHES: Final = 4
VAIN_ROWS: Final = 256
#: Share of the free memory that a batch may fill.
CACHE_SHARE: Final = 0.8


def fitting_batch(target: TorchTarget, config: GenerateConfig) -> int:
    """Rows of a batch: no more than are wanted, or than the free memory has caches for."""
    c, width = target.config, target.embedding.element_size()
    row = 2 * c.num_layers * c.num_kv_heads * c.head_dim * config.length * width
    # Logits and their noise, in float32.
    row += 4 * 4 * c.vocab_size
    cuda = target.device.type == "cuda"
    free = torch.cuda.mem_get_info()[0] if cuda else Memory.read().free
    return max(1, min(config.batch, config.samples, int(CACHE_SHARE * free / row)))


def generate(
    target: TorchTarget,
    frame: Frame,
    config: GenerateConfig,
    progress: Progress = silent,
    *,
    fast: bool = False,
) -> Conversations:
    """Write ``config.samples`` rows, or as many as ``config.seconds`` allow, into host memory.

    Raises:
        DrafterError: none of many rows has the answer tokens that it must have.
    """
    torch.manual_seed(config.seed)
    config = replace(config, batch=fitting_batch(target, config))
    writer = ConversationWriter(target, frame, config, fast=fast)
    writer.prepare(progress)
    parts: list[Conversations] = []
    count, batches, began = 0, 0, time.monotonic()
    while count < config.samples:
        part = writer.write(*start_rows(writer.scripts, config, target.device))
        parts.append(part.to(torch.device("cpu")))
        count, batches = count + len(part), batches + 1
        if not count and batches >= VAIN_BATCHES and batches * config.batch >= VAIN_ROWS:
            raise DrafterError(
                f"none of {batches * config.batch} conversations has {config.min_supervised} "
                "tokens of answers; raise generate.length, or lower generate.min_supervised"
            )
        progress("Writing conversations", min(count, config.samples), config.samples)
        if config.seconds and time.monotonic() - began > config.seconds:
            break
    return concatenate(parts)
