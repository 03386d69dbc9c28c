"""Training data: rows of tokens, and which of them are the target's own answers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from outrider.kernels.tensors import index_range
from outrider.train.work import replacing
from outrider.types.errors import DrafterError

#: A row loops if this many tokens in sequence equal those a short period before.
LOOP_RUN = 48
#: Longest period that counts as a loop.
LOOP_PERIOD = 40
#: What to do about a file that cannot be used.
ANEW = "delete its folder, or name another"
#: Type and number of dimensions of each tensor.
LAYOUT = {
    "ids": (torch.int32, 2),
    "supervised": (torch.bool, 2),
    "category": (torch.uint8, 1),
    "greedy": (torch.bool, 1),
    "looping": (torch.bool, 1),
}


@dataclass(frozen=True)
class Conversations:
    """Rows of n conversations, T tokens each.

    Attributes:
        ids: int32 [n, T].
        supervised: bool [n, T], tokens that the target chose in an answer.
        category: uint8 [n], index into ``chat_frame.CATEGORIES``, of the first turn.
        greedy: bool [n], whether the answers are greedy.
        looping: bool [n], whether an answer repeats itself.
    """

    ids: Tensor
    supervised: Tensor
    category: Tensor
    greedy: Tensor
    looping: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, index: Tensor) -> Conversations:
        """The rows of an index or a boolean mask."""
        return Conversations(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, device: torch.device) -> Conversations:
        """The same rows on a device."""
        return Conversations(*(getattr(self, f.name).to(device) for f in fields(self)))

    def split(self, heldout: int) -> tuple[Conversations, Conversations]:
        """Training rows, and the last ``heldout`` rows."""
        return self.select(slice_of(0, len(self) - heldout)), self.select(
            slice_of(len(self) - heldout, len(self))
        )

    def save(self, path: Path) -> None:
        """Write atomically as safetensors."""
        tensors = {f.name: getattr(self, f.name).contiguous().cpu() for f in fields(self)}
        save_atomically(tensors, path)


def slice_of(start: int, stop: int) -> Tensor:
    """Index of consecutive rows."""
    return index_range(start, stop)


def save_atomically(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file that is either whole or absent."""
    with replacing(path) as partial:
        save_file(tensors, partial)
        partial.chmod(0o644)


def load_conversations(path: Path) -> Conversations:
    """Read rows that ``Conversations.save`` wrote.

    Raises:
        DrafterError: the file is damaged, or holds something else.
    """
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        detail = " ".join(str(error).split())
        raise DrafterError(f"{path}: not a whole safetensors file: {detail}; {ANEW}") from None
    found = {name: (tensor.dtype, tensor.ndim) for name, tensor in tensors.items()}
    if found == LAYOUT:
        rows = Conversations(**tensors)
        counts = {len(tensor) for tensor in tensors.values()}
        if len(counts) == 1 and rows.ids.shape == rows.supervised.shape:
            return rows
    raise DrafterError(f"{path}: does not hold conversations; {ANEW}")


def concatenate(parts: list[Conversations]) -> Conversations:
    """Rows of several parts, in order."""
    return Conversations(
        *(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Conversations))
    )


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
