"""Tensors that the engine makes. Each names its dtype and its device.

torch's defaults belong to the whole process: a library that sets one, in any thread and even for a
moment, would otherwise choose the size of a buffer that native code writes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

CPU: Final = torch.device("cpu")


def new_floats(*shape: int) -> Tensor:
    """Memory for float32 results in CPU memory; its contents are undefined."""
    return torch.empty(shape, dtype=torch.float32, device=CPU)


def new_ids(count: int) -> Tensor:
    """Memory for int64 results [count] in CPU memory; its contents are undefined."""
    return torch.empty(count, dtype=torch.int64, device=CPU)


def zeros(*shape: int, device: torch.device = CPU) -> Tensor:
    """Zeros, float32."""
    return torch.zeros(shape, dtype=torch.float32, device=device)


def token_ids(tokens: Sequence[int], device: torch.device = CPU) -> Tensor:
    """Tokens, or indices of rows, int64 [n]."""
    return torch.tensor(tokens, dtype=torch.int64, device=device)


def index_range(start: int, end: int) -> Tensor:
    """Positions start .. end - 1, int64, in CPU memory."""
    return torch.arange(start, end, dtype=torch.int64, device=CPU)
