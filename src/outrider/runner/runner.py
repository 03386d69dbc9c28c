"""The target pass: stage rows in the caches, run the model, offer results to the verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import RowGroup, Rows
from outrider.kernels.tensors import index_range, token_ids
from outrider.models.dense import DenseModel, TargetOutput
from outrider.session.share import PassOutput, Share


class TargetPass(PassOutput):
    """Results of one pass. Staged rows stay staged until every share is settled."""

    def __init__(
        self,
        model: DenseModel,
        store: PageStore,
        shares: Sequence[Share],
        groups: Sequence[RowGroup],
        output: TargetOutput,
    ) -> None:
        self._model = model
        self._store = store
        self._shares = shares
        self._groups = groups
        self._output = output
        counts = [len(share.tokens) for share in shares]
        self._first_row: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()

    def finite_rows(self, share: int) -> int:
        """How many of a share's rows, from the first on, have finite states."""
        first, end = self._first_row[share], self._first_row[share + 1]
        if self._output.finite is None:
            return end - first
        bad = (~self._output.finite[first:end]).nonzero()
        return int(bad[0]) if len(bad) else end - first

    def first_fault(self, share: int, rows: int) -> str:
        """The first part of the model whose output is not finite in a share's first rows."""
        group = replace(self._groups[share], count=rows)
        ids = token_ids(self._shares[share].tokens[:rows])
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

    def taps(self, share: int, count: int) -> Tensor | None:
        """Tapped states of a share's first rows."""
        if self._output.taps is None:
            return None
        first = self._first_row[share]
        return self._output.taps[first : first + count]

    def settle(self, share: int, count: int) -> None:
        """Commit a share's first rows."""
        self._shares[share].work.session.cache.commit(count)

    def _hidden(self, rows: Sequence[int]) -> Tensor:
        hidden = self._output.hidden
        if len(rows) == len(hidden):  # each row is asked for once, in order
            return hidden
        return hidden[token_ids(rows)]


#: Row counts of a profile, and seconds after which it goes on with what it has.
_PROFILE_ROWS: Final = (1, 2, 4, 8, 16)
_PROFILE_SECONDS: Final = 0.4


class Runner:
    """Feeds rows to one target."""

    def __init__(self, model: DenseModel, store: PageStore, taps: Sequence[int]) -> None:
        """Bind a target.

        Args:
            model: the target.
            store: the pages of all sessions.
            taps: layers whose residual outputs the drafter reads.
        """
        self._model = model
        self._store = store
        self._taps = tuple(taps)

    def scratch_taps(self, pool: PagePool, rows: int) -> Tensor | None:
        """Tapped states of ``rows`` rows that are forgotten at once."""
        cache = PagedCache(pool)
        group = cache.stage(rows)
        try:
            ids, none = token_ids([0] * rows), token_ids([])
            return self._model.forward(ids, Rows((group,)), self._store, none, self._taps).taps
        finally:
            cache.commit(0)

    def profile(self, pool: PagePool, longest: int) -> list[tuple[int, float]]:
        """Measure passes of a few row counts over scratch rows, as (rows, seconds).

        The first pass is a warm-up. On a slow target the profile stops early; two counts are
        always measured, so that a slope is known, unless no session can have so many rows.

        Args:
            pool: free pages.
            longest: most rows of a session, at least 1.
        """
        cache = PagedCache(pool)
        knots: list[tuple[int, float]] = []
        began = time.perf_counter()
        self._scratch_pass(cache, 1)
        for rows in (rows for rows in _PROFILE_ROWS if rows <= longest):
            if len(knots) >= 2 and time.perf_counter() - began > _PROFILE_SECONDS:
                break
            knots.append((rows, min(self._scratch_pass(cache, rows) for _ in range(3))))
        return knots

    def _scratch_pass(self, cache: PagedCache, rows: int) -> float:
        """Seconds of one pass over ``rows`` rows that are forgotten at once."""
        group = cache.stage(rows)
        try:
            ids, all_rows = token_ids([0] * rows), index_range(0, rows)
            began = time.perf_counter()
            output = self._model.forward(ids, Rows((group,)), self._store, all_rows, self._taps)
            self._model.argmax(output.hidden)
            return time.perf_counter() - began
        finally:
            cache.commit(0)

    def forward(self, shares: Sequence[Share]) -> TargetPass:
        """Stage and run all shares' rows in one ragged pass.

        If it raises, rows may stay staged: whoever runs the round sets its sessions back.
        """
        tokens = [share.tokens for share in shares]
        groups = [
            share.work.session.cache.stage(len(ids))
            for share, ids in zip(shares, tokens, strict=True)
        ]
        output = self._model.forward(
            token_ids([token for ids in tokens for token in ids]),
            Rows(tuple(groups)),
            self._store,
            _judged_rows(shares, [len(ids) for ids in tokens]),
            self._taps,
        )
        return TargetPass(self._model, self._store, shares, groups, output)


def _judged_rows(shares: Sequence[Share], counts: Sequence[int]) -> Tensor:
    """Indices of the rows whose logits decide tokens, int64."""
    rows: list[int] = []
    end = 0
    for share, count in zip(shares, counts, strict=True):
        end += count
        rows.extend(range(end - share.judged, end))
    return token_ids(rows)
