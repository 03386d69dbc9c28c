"""The target pass: stage rows in the caches, run the model, offer results to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import index_range, token_ids
from outrider.models.dense import DenseModel
from outrider.runner.target_pass import TargetPass
from outrider.session.session_rows import SessionRows
from outrider.types.clock import Clock

#: Row counts of a profile: one for plain decoding, the rest up to a draft of 15. Seconds after
#: which it goes on with what it has, so that a slow target is not kept from serving. Both set by
#: hand; no measurement is recorded.
_PROFILE_ROWS: Final = (1, 2, 4, 8, 16)
_PROFILE_SECONDS: Final = 0.4


class Runner:
    """Feeds rows to one target."""

    def __init__(
        self, model: DenseModel, store: PageStore, taps: Sequence[int], clock: Clock
    ) -> None:
        """Bind a target.

        Args:
            model: the target.
            store: the pages of all sessions.
            taps: layers whose residual outputs the drafter reads.
            clock: times the passes of a profile.
        """
        self._model = model
        self._store = store
        self._taps = tuple(taps)
        self._clock = clock

    @property
    def vocab_size(self) -> int:
        """Tokens that the target knows."""
        return self._model.config.vocab_size

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
        began = self._clock()
        self._scratch_pass(cache, 1)
        for rows in (rows for rows in _PROFILE_ROWS if rows <= longest):
            if len(knots) >= 2 and self._clock() - began > _PROFILE_SECONDS:
                break
            knots.append((rows, min(self._scratch_pass(cache, rows) for _ in range(3))))
        return knots

    def _scratch_pass(self, cache: PagedCache, rows: int) -> float:
        """Seconds of one pass over ``rows`` rows that are forgotten at once."""
        group = cache.stage(rows)
        try:
            ids, all_rows = token_ids([0] * rows), index_range(0, rows)
            began = self._clock()
            output = self._model.forward(ids, Rows((group,)), self._store, all_rows, self._taps)
            self._model.argmax(output.hidden)
            return self._clock() - began
        finally:
            cache.commit(0)

    def forward(self, batch: Sequence[SessionRows]) -> TargetPass:
        """Stage and run all sessions' rows in one ragged pass.

        If it raises, rows may stay staged: whoever runs the round sets its sessions back.
        """
        tokens = [rows.tokens for rows in batch]
        groups = [
            rows.session.cache.stage(len(ids)) for rows, ids in zip(batch, tokens, strict=True)
        ]
        output = self._model.forward(
            token_ids([token for ids in tokens for token in ids]),
            Rows(tuple(groups)),
            self._store,
            _judged_rows(batch, [len(ids) for ids in tokens]),
            self._taps,
        )
        return TargetPass(self._model, self._store, batch, groups, output)


def _judged_rows(batch: Sequence[SessionRows], counts: Sequence[int]) -> Tensor:
    """Indices of the rows whose logits decide tokens, int64."""
    rows: list[int] = []
    end = 0
    for session, count in zip(batch, counts, strict=True):
        end += count
        rows.extend(range(end - session.judged, end))
    return token_ids(rows)
