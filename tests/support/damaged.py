"""A tiny target whose weights are partly not finite."""

from __future__ import annotations

from dataclasses import replace

from outrider.kernels.table import Kernels
from outrider.kernels.weights import RawWeight, raw_float
from outrider.models.dense import DenseModel
from outrider.models.target import Target
from support.tiny import TINY, random_weight, tiny_tokenizer

UNTIED = replace(TINY, tied=False)


def damaged(kernels: Kernels, name: str, value: float, row: int | None = None) -> Target:
    """The tiny target with one tensor, or one row of it, spoilt."""

    def source(tensor: str, shape: tuple[int, ...]) -> RawWeight:
        weight = random_weight(tensor, shape)
        if tensor != name:
            return weight
        data = weight.data.clone()
        data[slice(None) if row is None else row] = value
        return raw_float(tensor, data)

    model = DenseModel(UNTIED, kernels, source, 256)
    return Target("tiny", "tiny", model, tiny_tokenizer(UNTIED.vocab_size), 256)
