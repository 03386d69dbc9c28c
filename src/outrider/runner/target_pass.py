"""What one target pass left behind, offered to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.handles import PageStore
from outrider.kernels.rows import RowGroup, Rows
from outrider.kernels.tensors import token_ids
from outrider.models.dense import DenseModel, TargetOutput
from outrider.session.pass_output import PassOutput
from outrider.session.session_rows import SessionRows


class TargetPass(PassOutput):
    """Results of one pass. Rows stay staged until they are committed, session by session."""

    def __init__(
        self,
        model: DenseModel,
        store: PageStore,
        batch: Sequence[SessionRows],
        groups: Sequence[RowGroup],
        output: TargetOutput,
    ) -> None:
        self._model = model
        self._store = store
        self._batch = batch
        self._groups = groups
        self._output = output
        counts = [len(rows.tokens) for rows in batch]
        self._first_row: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()

    def finite_rows(self, index: int) -> int:
        """How many of a session's rows, from the first on, have finite states."""
        first, end = self._first_row[index], self._first_row[index + 1]
        if self._output.finite is None:
            return end - first
        bad = (~self._output.finite[first:end]).nonzero()
        return int(bad[0]) if len(bad) else end - first

    def first_fault(self, index: int, count: int) -> str:
        """The first part of the model whose output is not finite in a session's first rows."""
        group = replace(self._groups[index], count=count)
        ids = token_ids(self._batch[index].tokens[:count])
        return self._model.first_fault(ids, Rows((group,)), self._store)

    def argmax(self, rows: Sequence[int]) -> list[int]:
        """Most likely token of each judged row."""
        tokens: list[int] = self._model.argmax(self._hidden(rows)).tolist()
        return tokens

    def draw(
        self,
        rows: Sequence[int],
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> list[int]:
        """Gumbel-max draw at each judged row."""
        drawn = self._model.draw(self._hidden(rows), temperatures, seeds, positions)
        tokens: list[int] = drawn.tolist()
        return tokens

    def logits(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits of judged rows."""
        values: NDArray[np.float32] = self._model.logits(self._hidden(rows)).numpy()
        return values

    def taps(self, index: int, count: int) -> Tensor | None:
        """Tapped states of a session's first rows."""
        if self._output.taps is None:
            return None
        first = self._first_row[index]
        return self._output.taps[first : first + count]

    def commit(self, index: int, count: int) -> None:
        """Commit a session's first rows."""
        self._batch[index].session.cache.commit(count)

    def _hidden(self, rows: Sequence[int]) -> Tensor:
        hidden = self._output.hidden
        if len(rows) == len(hidden):  # each row is asked for once, in order
            return hidden
        return hidden[token_ids(rows)]
