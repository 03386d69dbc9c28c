"""Rotary angles of any positions."""

from __future__ import annotations

from torch import Tensor

from outrider.config.decoder import DecoderShape
from outrider.models.rotary import rotary_table
from outrider.train.networks.target import Angles


class AngleTable:
    """Angles of a network's positions, computed when first asked for, kept where they were last."""

    def __init__(self, shape: DecoderShape, positions: int) -> None:
        """Take the network's shape, and how many positions it can meet."""
        self._shape = shape
        self._positions = positions
        self._table: Angles | None = None

    def at(self, positions: Tensor) -> Angles:
        """Angles of positions, int64 [..] to [.., d / 2]."""
        device = positions.device
        if self._table is None or self._table.cos.device != device:
            table = rotary_table(self._shape.rotary, self._shape.head_dim, self._positions)
            self._table = Angles(table.cos.to(device), table.sin.to(device))
        return Angles(self._table.cos[positions], self._table.sin[positions])
