"""What one target pass offers to the verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class PassOutput(ABC):
    """Results of one target pass over the rows of a batch of sessions.

    A session is named by its index in the batch. Judged rows are numbered over all sessions.
    """

    @abstractmethod
    def finite_rows(self, index: int) -> int:
        """How many of a session's rows, from the first on, have finite states."""

    @abstractmethod
    def first_fault(self, index: int, count: int) -> str:
        """The first part of the model whose output is not finite in a session's first rows."""

    @abstractmethod
    def argmax(self, rows: Sequence[int]) -> list[int]:
        """Most likely token of each judged row, -1 where a logit is not finite."""

    @abstractmethod
    def draw(
        self,
        rows: Sequence[int],
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> list[int]:
        """Gumbel-max draw at each judged row, keyed by (seed, position); -1 as for ``argmax``."""

    @abstractmethod
    def logits(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits of judged rows, float32 [len(rows), V]."""

    @abstractmethod
    def taps(self, index: int, count: int) -> Tensor | None:
        """Tapped states of a session's first ``count`` rows, [count, taps H], or None."""

    @abstractmethod
    def commit(self, index: int, count: int) -> None:
        """Commit a session's first ``count`` rows to its cache and forget the rest."""
