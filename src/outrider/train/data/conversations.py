"""Training data: rows of tokens, and which of them are the target's own answers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from outrider.kernels.tensors import index_range
from outrider.train.files import save_atomically
from outrider.types.errors import DrafterError

#: What to do about a file that cannot be used.
ANEW: Final = "delete its folder, or name another"
#: Type and number of dimensions of each tensor.
LAYOUT: Final = {
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
        count = len(self) - heldout
        return self.select(index_range(0, count)), self.select(index_range(count, len(self)))

    def save(self, path: Path) -> None:
        """Write atomically as safetensors."""
        tensors = {f.name: getattr(self, f.name).contiguous().cpu() for f in fields(self)}
        save_atomically(tensors, path)


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
