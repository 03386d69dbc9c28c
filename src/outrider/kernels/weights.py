"""Weights as a checkpoint stores them, before an implementation prepares them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch

FLOAT_FORMATS: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

#: Quantised format to (weights per block, bytes per block); the layouts are GGUF's.
BLOCK_FORMATS: Final[dict[str, tuple[int, int]]] = {
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}


@dataclass(frozen=True)
class RawWeight:
    """One tensor of a checkpoint in its stored format.

    Attributes:
        name: name in the checkpoint, for messages.
        shape: logical shape, outputs first.
        format: a key of FLOAT_FORMATS or BLOCK_FORMATS.
        data: float formats: a tensor of ``shape`` in that dtype. Block formats: uint8
            [shape[0], bytes per row]; blocks run along the last logical dimension.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: torch.Tensor

    @property
    def quantized(self) -> bool:
        """Whether it is stored in blocks of integers."""
        return self.format in BLOCK_FORMATS

    @property
    def nbytes(self) -> int:
        """Bytes of the stored data."""
        return self.data.numel() * self.data.element_size()

    def rows(self, index: torch.Tensor) -> RawWeight:
        """Return the given rows (int64 [m]) in the given order, still in the stored format."""
        return replace(self, shape=(len(index), *self.shape[1:]), data=self.data[index])

    def float(self) -> torch.Tensor:
        """Return the weight as float32 of ``shape``."""
        if self.format in FLOAT_FORMATS:
            return self.data.float()
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        array = dequantize(self.data.numpy(), GGMLQuantizationType[self.format])
        return torch.from_numpy(array).reshape(self.shape)


def raw_float(name: str, tensor: torch.Tensor) -> RawWeight:
    """Wrap a float32, float16 or bfloat16 tensor.

    Raises:
        ValueError: for any other dtype.
    """
    for label, dtype in FLOAT_FORMATS.items():
        if tensor.dtype == dtype:
            return RawWeight(name, tuple(tensor.shape), label, tensor)
    raise ValueError(f"{name}: weights must be float32, float16 or bfloat16, not {tensor.dtype}")
