"""A drafter over paged context rows, whatever its network: faults, tails and accounting."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.caches.paged import PagedCache
from outrider.caches.pool import OutOfPages, PagePool
from outrider.drafters.base import (
    CommittedRows,
    Drafter,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    DraftState,
    Proposal,
    Tail,
)
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.context.state import ContextState, context_state
from outrider.drafters.context.tail import ContextTail, TailCounts
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import RowGroup, Rows
from outrider.models.dense import DenseModel


class ContextDrafter(Drafter):
    """A drafter over paged context rows; subclasses say how rows are made and read.

    Attributes:
        target: the model it drafts for.
        pool: pages of the context rows.
        tails: counts of tails exported, restored and refused.
        reach: how many positions up to its own a row can see; None sees all.
    """

    def __init__(
        self,
        name: str,
        target: DenseModel,
        store: PageStore,
        max_position: int,
        reach: int | None,
    ) -> None:
        """Take over the pages of ``store``."""
        self.name = name
        self.target = target
        self.kernels = target.kernels
        self.pool = PagePool(store)
        self.page_nbytes = store.page_nbytes
        self.max_position = max_position
        self.reach = reach
        self.tails = TailCounts()
        self._limit = max_position
        self._shape = (name, store.layers, store.kv_heads, store.head_dim, reach)

    # -- to be filled in -----------------------------------------------------------------------

    @abstractmethod
    def _features(self, states: list[ContextState], rows: list[CommittedRows]) -> list[Tensor]:
        """What the context rows are made of, one tensor [n_i, H] per session."""

    @abstractmethod
    def _write(self, features: Tensor, rows: Rows) -> None:
        """Write staged context rows from their features [n, H]."""

    @abstractmethod
    def _draft(self, requests: list[CheckedRequest]) -> list[Proposal | DrafterFault]:
        """Draft for sound requests, one answer each."""

    # -- observing -----------------------------------------------------------------------------

    def begin(self, sampling: DraftSampling) -> ContextState:
        """Return a state without rows."""
        return ContextState(PagedCache(self.pool), sampling)

    def observe(self, states: Sequence[DraftState], rows: Sequence[CommittedRows]) -> None:
        """Ingest newly committed rows of many sessions in one pass.

        Rows without taps are passed over and the session starts cold after them: this is how rows
        that the target reused from a cache, and never computed, are observed.
        """
        pairs = [
            (mine, new)
            for state, new in zip(states, rows, strict=True)
            if self._admits(mine := context_state(state), new)
        ]
        if not pairs:
            return
        features = self._features([mine for mine, _ in pairs], [new for _, new in pairs])
        groups, kept = [], []
        try:
            for (mine, new), rows_in in zip(pairs, features, strict=True):
                group = self._stage(mine, new, rows_in)
                if group is not None:
                    groups.append((mine, group))
                    kept.append(rows_in)
            if groups:
                self._write(joined(kept), Rows(tuple(group for _, group in groups)))
        except BaseException:
            for mine, _ in groups:
                mine.cache.commit(0)
            raise
        for mine, group in groups:
            mine.cache.commit(group.count)

    def _admits(self, state: ContextState, new: CommittedRows) -> bool:
        """Whether the rows can be ingested; if not, the state is moved past them."""
        count = len(new.tokens)
        if not count:
            return False
        end = new.start + count
        width = len(self.taps) * self.target.config.hidden_size
        if new.start != state.length:
            state.fail(f"rows at {new.start} do not continue the {state.length} observed", end)
        elif new.taps is None or end > self._limit:
            state.skip_to(end)
        elif new.taps.shape != (count, width):
            state.fail(f"taps of shape {list(new.taps.shape)}, not {[count, width]}", end)
        else:
            return True
        return False

    def _stage(self, state: ContextState, new: CommittedRows, features: Tensor) -> RowGroup | None:
        """Stage a session's rows, or move it past them if they are unusable."""
        end = new.start + len(new.tokens)
        if not all_finite(features):
            state.fail(f"target states at {new.start}..{end - 1} are not finite", end)
            return None
        if not len(features):
            return None
        try:
            return state.stage(len(features), self.pool.store)
        except OutOfPages:
            state.fail("the draft cache is out of pages", end)
            return None

    # -- proposing -----------------------------------------------------------------------------

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        """Draft for all sessions in one pass; a fault concerns its session alone."""
        answers: list[Proposal | DrafterFault] = [Proposal() for _ in requests]
        sound = []
        for place, request in enumerate(requests):
            state = context_state(request.state)
            length = min(request.computed, self.max_draft)
            if length < 1:  # every token costs time
                continue
            fault = self._fault_of(state, request.tip)
            if fault is None:
                sound.append(CheckedRequest(place, state, request.tip, length))
            else:
                answers[place] = DrafterFault(fault)
        if sound:
            for checked, answer in zip(sound, self._draft(sound), strict=True):
                answers[checked.place] = answer
        return answers

    def _fault_of(self, state: ContextState, tip: int) -> str | None:
        """Why nothing can be drafted after ``tip``, or None."""
        fault = state.take_fault()
        if fault is not None:
            return fault
        vocab = self.target.config.vocab_size
        if not 0 <= tip < vocab:
            return f"tip {tip} is outside the vocabulary of {vocab}"
        if state.length >= self._limit:
            return f"position {state.length} is beyond the drafter's {self._limit}"
        return None

    # -- tails ---------------------------------------------------------------------------------

    def lowest_needed(self, upto: int) -> int:
        """Lowest row that drafting from position ``upto`` on can observe.

        The block at ``upto`` sees rows from ``upto - reach + 1`` on, later blocks see later ones;
        with a layer of full attention every row is needed.
        """
        return 0 if self.reach is None else max(0, upto - self.reach + 1)

    def export_tail(self, state: DraftState, upto: int) -> ContextTail | None:
        """Copy out rows [lowest_needed(upto), upto), or refuse if the state lacks any of them.

        ``upto`` is the published position: the state may have moved past it meanwhile.
        """
        mine = context_state(state)
        base = self.lowest_needed(upto)
        if not 0 < upto <= mine.length:
            self.tails.refused["export: position not observed"] += 1
        elif base < mine.cache.floor:
            self.tails.refused["export: rows missing"] += 1
        elif base == upto:
            self.tails.refused["export: nothing to observe"] += 1
        else:
            self.tails.exported += 1
            return ContextTail(upto, mine.cache.export(base, upto), self._shape)
        return None

    def restore(self, tail: Tail, sampling: DraftSampling) -> ContextState | None:
        """Rebuild a state at the tail's position, or refuse if the tail does not suffice."""
        if not isinstance(tail, ContextTail) or tail.shape != self._shape:
            self.tails.refused["restore: tail of another drafter"] += 1
            return None
        if tail.rows.base > self.lowest_needed(tail.upto) or tail.rows.upto != tail.upto:
            self.tails.refused["restore: rows missing"] += 1
            return None
        state = self.begin(sampling)
        try:
            state.cache.adopt(tail.rows)
        except OutOfPages:
            self.tails.refused["restore: out of pages"] += 1
            return None
        self.tails.restored += 1
        return state

    def recover(self, states: Sequence[DraftState]) -> None:
        """Count pages anew from all states that exist."""
        self.pool.recount([context_state(state).cache.pages for state in states])

    def audit(self, states: Sequence[DraftState]) -> None:
        """Check page counts against all states that exist.

        Raises:
            AssertionError: a page leaked or is held twice, or rows are staged between rounds.
        """
        self.pool.audit([context_state(state).cache.pages for state in states])


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Rows of all parts; a lone part as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def all_finite(x: Tensor) -> bool:
    """Whether every value is finite, and not so large that their sum is not.

    One reduction: NaN and infinities pass through a sum, and opposite infinities give NaN.
    """
    return math.isfinite(float(x.sum()))
