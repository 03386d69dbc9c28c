"""What a run needs of memory and disk, estimated before anything is loaded, and made to fit.

The estimates count the large tensors: weights and caches exactly, activations by the copies that
forward and backward passes keep. They are for the machine's own memory; on a GPU the driver tells
what is free when batches are laid out.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from outrider.config.memory import Memory
from outrider.config.model import ModelConfig
from outrider.train.config import TrainConfig
from outrider.train.fitting.judge import JUDGED
from outrider.train.fitting.loss import TEACHER_ROWS
from outrider.types.errors import DrafterError

FLOAT: Final = 4
#: Share of the memory that is free which a run may take.
SHARE: Final = 0.8
#: float32 values that a step keeps per draft and token of the draft vocabulary: logits, their
#: softmax, the target's, and the gradients of these.
LOSS_COPIES: Final = 8
#: Values that a layer keeps per row for its backward pass, in hidden and in intermediate sizes.
LAYER_STATES: Final = 12
LAYER_INNER: Final = 6
#: Copies of a drafter's weights in memory: weights, gradients, two moments, the judge's, the one
#: that is saved; and on disk: weights, two moments, the checkpoint.
NETWORK_COPIES: Final = 6
STATE_COPIES: Final = 4
#: Bytes of what one row sees of one other: a truth value, and what is added to the score.
MASK_BYTES: Final = 5
#: float32 values per token of the vocabulary when one row draws its next token.
DRAW_COPIES: Final = 6
#: Bytes of a token of a conversation, and how often all of them are in memory.
TOKEN_BYTES: Final = 5
DATA_COPIES: Final = 4
GIB: Final = 1 << 30


@dataclass(frozen=True)
class Estimate:
    """Bytes of a run.

    Attributes:
        held: in memory all the time: weights, optimiser and conversations.
        written_row: while a conversation is written, for each of a batch.
        trained_row: while a step is computed, for each conversation of a batch.
        judged: while the drafter is evaluated.
        disk: in the work folder and the checkpoint.
    """

    held: int
    written_row: int
    trained_row: int
    judged: int
    disk: int

    def peak(self, written: int, trained: int) -> int:
        """Most bytes in memory, with that many rows in a batch of each kind."""
        return self.held + max(written * self.written_row, trained * self.trained_row, self.judged)


def estimate(target: ModelConfig, config: TrainConfig) -> Estimate:
    """What a run takes in float32, without a GPU."""
    c, shape, length = target, config.shape, config.generate.length
    vocab = min(shape.draft_vocab, c.vocab_size)
    network = _network_size(c, config)
    inner = max(shape.intermediate_size, c.intermediate_size)
    layer = LAYER_STATES * c.hidden_size + LAYER_INNER * inner
    drafted = (1 if config.kind == "mtp" else shape.layers) * layer
    taps = (len(shape.taps) or shape.num_taps) * c.hidden_size
    trained = min(config.optim.anchors, length - 1) * shape.block
    judged = length * shape.block
    caches = 2 * c.num_layers * c.num_kv_heads * c.head_dim * length
    held = c.num_parameters + NETWORK_COPIES * network + vocab * c.hidden_size
    held += 2 * TEACHER_ROWS * c.vocab_size
    data = max(config.generate.samples, config.heldout) * length * TOKEN_BYTES
    return Estimate(
        held=FLOAT * held + DATA_COPIES * data,
        written_row=FLOAT * (caches + DRAW_COPIES * c.vocab_size + layer),
        trained_row=FLOAT
        * (trained * (LOSS_COPIES * vocab + drafted) + length * (vocab + layer + taps)),
        # Without gradients; every position is an anchor, and what rows see is a mask.
        judged=JUDGED
        * (
            FLOAT * (judged * layer // 2 + length * (2 * vocab + layer + taps))
            + MASK_BYTES * judged * (length + judged)
        ),
        disk=data + STATE_COPIES * FLOAT * network,
    )


def _network_size(target: ModelConfig, config: TrainConfig) -> int:
    """Parameters of a drafter, but for vectors."""
    c, shape = target, config.shape
    inner = shape.intermediate_size or c.intermediate_size
    layer = c.hidden_size * (2 * c.num_heads + 2 * c.num_kv_heads) * c.head_dim
    layer += 3 * c.hidden_size * inner
    if config.kind == "mtp":
        return layer + 2 * c.hidden_size**2
    taps = len(shape.taps) or shape.num_taps
    rank = shape.markov_rank if config.kind == "dspark" else 0
    vocab = min(shape.draft_vocab, c.vocab_size)
    return shape.layers * layer + taps * c.hidden_size**2 + rank * (c.vocab_size + vocab)


@dataclass(frozen=True)
class Plan:
    """A run that fits.

    Attributes:
        config: the configuration, with batches that fit into memory.
        line: what the run needs, for the user.
    """

    config: TrainConfig
    line: str


def plan(target: ModelConfig, config: TrainConfig, device: torch.device, *, write: bool) -> Plan:
    """Bound the batches of a run by its samples and by the memory that is free.

    Args:
        target: shape of the target.
        config: the run.
        device: where it trains. The memory of a GPU bounds its batches when they are laid out.
        write: whether conversations are to be written.

    Raises:
        DrafterError: it does not fit with one conversation at a time.
    """
    need = estimate(target, config)
    free = _free_disk(Path(config.work))
    if need.disk > free:
        raise DrafterError(
            f"{config.work}: the run takes about {_gib(need.disk)} of disk, and {_gib(free)} are "
            "free; name another --work folder, or lower generate.samples"
        )
    written = min(config.generate.batch, config.generate.samples) if write else 0
    trained = min(config.optim.rows, config.generate.samples)
    if device.type == "cpu":
        room = int(SHARE * Memory.read().free)
        spare = room - need.held
        least = need.peak(min(written, 1), 1)
        if least > room:
            raise DrafterError(
                f"training takes at least {_gib(least)} of memory with one conversation at a time, "
                f"and {_gib(room)} are free for it; lower generate.length, optim.anchors or "
                "shape.draft_vocab (--config), or take a smaller model"
            )
        written = min(written, max(spare // need.written_row, 1))
        trained = min(trained, spare // need.trained_row)
    fitted = replace(
        config,
        generate=replace(config.generate, batch=max(written, 1)),
        optim=replace(config.optim, rows=trained),
    )
    return Plan(fitted, _line(need, fitted, config, device, write=write))


def _line(
    need: Estimate, fitted: TrainConfig, asked: TrainConfig, device: torch.device, *, write: bool
) -> str:
    written, trained = fitted.generate.batch if write else 0, fitted.optim.rows
    parts = [f"about {_gib(need.disk)} of disk"]
    if device.type == "cpu":
        parts.insert(0, f"about {_gib(need.peak(written, trained))} of memory")
    if write:
        parts.append(f"{written} conversations written together")
    parts.append(f"{trained} in a step")
    wanted = min(asked.optim.rows, asked.generate.samples)
    if trained < wanted:
        parts[-1] += f" ({wanted} do not fit)"
    return "Needs " + ", ".join(parts)


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"


def _free_disk(folder: Path) -> int:
    """Bytes free where a folder is or would be made; no bound where nothing can be stored."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            usage = shutil.disk_usage(place)
            return usage.free if usage.total else sys.maxsize
    return sys.maxsize


@contextmanager
def memory_faults() -> Iterator[None]:
    """Tell a user in one line that memory ran out."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _out_of_memory(error) from None
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error) and "can't allocate memory" not in str(error):
            raise
        raise _out_of_memory(error) from None


def _out_of_memory(error: BaseException) -> DrafterError:
    detail = " ".join(str(error).split())[:120]
    return DrafterError(
        "memory ran out; lower generate.batch, optim.rows or optim.anchors (--config)"
        + (f": {detail}" if detail else "")
    )
