"""One round for a batch of sessions: draft, judge, commit. Plain decoding is an empty draft."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.drafters.base import CommittedRows, Drafter, DrafterFault, DraftState, Proposal
from outrider.session.session import SpecSession
from outrider.types.telemetry import Telemetry
from outrider.verify.choosers import Demand, Guess, RowResult
from outrider.verify.logprobs import token_logprob

_log = logging.getLogger("outrider")

#: Drafted tokens after which a share of accepted ones below USELESS_SHARE is reported.
USELESS_AFTER: Final = 2000
USELESS_SHARE: Final = 0.01


@dataclass(frozen=True)
class Work:
    """One session's share of a round.

    Attributes:
        session: whose.
        feed: decided tokens to feed.
        draft_length: most tokens to draft after them; 0 unless ``feed`` reaches the tip.
    """

    session: SpecSession
    feed: int
    draft_length: int


@dataclass
class Share:
    """One session's rows in a pass. Fixed when the round begins, whatever is emitted later.

    Attributes:
        work: what was planned.
        fed: the decided tokens it feeds.
        reaches_tip: whether they end with the tip, so that this round decides tokens; prefill
            chunks before the last do not.
        draft: what the drafter proposed; no tokens for plain decoding and prefill.
    """

    work: Work
    fed: list[int]
    reaches_tip: bool
    draft: Proposal = field(default_factory=Proposal)

    @classmethod
    def of(cls, work: Work) -> Share:
        """The share of planned work, with nothing drafted yet."""
        stream = work.session.stream
        fed = stream.tokens[stream.committed : stream.committed + work.feed]
        return cls(work, fed, work.feed == stream.pending)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the rows, in order."""
        return self.fed + self.draft.tokens

    @property
    def judged(self) -> int:
        """Rows, counted from the last, whose logits decide tokens."""
        return 1 + len(self.draft.tokens) if self.reaches_tip else 0


class PassOutput(ABC):
    """What one target pass offers to the verdict. Judged rows are numbered over all shares."""

    @abstractmethod
    def argmax(self, rows: Sequence[int]) -> list[int]:
        """Most likely token of each judged row."""

    @abstractmethod
    def draw(
        self,
        rows: Sequence[int],
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> list[int]:
        """Gumbel-max draw at each judged row, keyed by (seed, position)."""

    @abstractmethod
    def logits(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits of judged rows, float32 [len(rows), V]."""

    @abstractmethod
    def taps(self, share: int, count: int) -> Tensor | None:
        """Tapped states of the first ``count`` rows of a share, [count, taps H], or None."""

    @abstractmethod
    def settle(self, share: int, count: int) -> None:
        """Commit the first ``count`` rows of a share and forget the rest."""


@dataclass(frozen=True)
class Verdict:
    """What a round decided for one session.

    Attributes:
        share: its rows.
        emitted: the new tokens, cut where the stream ended.
        rows: how many of its rows become committed.
    """

    share: Share
    emitted: list[int]
    rows: int


class Rounds:
    """Runs the three phases of a round around the target pass."""

    def __init__(self, drafter: Drafter | None, vocab_size: int, threshold: float) -> None:
        """Bind a drafter.

        Args:
            drafter: None decodes plainly.
            vocab_size: token ids at or above it are faults.
            threshold: a draft is cut before its first token with a confidence below this.
        """
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._threshold = threshold
        self._warned = False
        self._tally = Telemetry()
        self._useless_reported = False

    # -- draft -----------------------------------------------------------------------------------

    def draft(self, plan: Sequence[Work]) -> list[Share]:
        """Ask the drafter for every session that may draft. A fault leaves that session plain."""
        shares = [Share.of(work) for work in plan]
        asked = [share for share in shares if share.work.draft_length > 0]
        if self._drafter is None or not asked:
            return shares
        for share, proposal in zip(asked, self._propose(self._drafter, asked), strict=True):
            share.draft = self._checked(share, proposal)
        return shares

    def _propose(
        self, drafter: Drafter, asked: Sequence[Share]
    ) -> Sequence[Proposal | DrafterFault]:
        """One answer per share.

        If the batch fails, each is asked alone: one bad neighbour must not cost the others.
        """
        states = [_state(share) for share in asked]
        tips = [share.work.session.stream.tip for share in asked]
        lengths = [share.work.draft_length for share in asked]
        try:
            proposals = drafter.propose(states, tips, lengths)
        except Exception as fault:
            if len(asked) > 1:
                return [self._propose(drafter, [share])[0] for share in asked]
            return [DrafterFault(repr(fault))]
        if len(proposals) != len(asked):
            return [DrafterFault(f"{len(proposals)} answers for {len(asked)}")] * len(asked)
        return proposals

    def _checked(self, share: Share, proposal: Proposal | DrafterFault) -> Proposal:
        """The usable part of a proposal: nothing if it is faulty, else up to the threshold."""
        if isinstance(proposal, DrafterFault):
            return self._fault(share.work.session, proposal)
        try:
            reason = self._defect(proposal)
        except Exception as fault:
            reason = repr(fault)
        if reason:
            return self._fault(share.work.session, DrafterFault(reason))
        keep = min(len(proposal.tokens), share.work.draft_length)
        low = (i for i, c in enumerate(proposal.confidences[:keep]) if c < self._threshold)
        keep = next(low, keep)
        return Proposal(
            [int(token) for token in proposal.tokens[:keep]],
            None if proposal.probabilities is None else proposal.probabilities[:keep],
            proposal.confidences[:keep],
        )

    def _defect(self, proposal: Proposal) -> str | None:
        """Why a proposal cannot be used, or None."""
        for token in proposal.tokens:
            if not 0 <= token < self._vocab_size:
                return f"token {token} is outside the vocabulary of {self._vocab_size}"
        q = proposal.probabilities
        if q is not None:
            if tuple(q.shape) != (len(proposal.tokens), self._vocab_size):
                return f"probabilities have shape {tuple(q.shape)}"
            if not bool(torch.isfinite(q).all()) or bool((q < 0).any()):
                return "probabilities are not finite"
            drawn = q[torch.arange(len(proposal.tokens)), torch.tensor(proposal.tokens).long()]
            if not bool((drawn > 0).all()):
                return "a token has no probability of its own"
        return None

    def _fault(self, session: SpecSession, fault: DrafterFault) -> Proposal:
        session.telemetry.faults += 1
        if not self._warned:
            self._warned = True
            _log.warning("drafter fault, decoding plainly for the round: %s", fault)
        return Proposal()

    # -- judge -----------------------------------------------------------------------------------

    def judge(self, shares: Sequence[Share], output: PassOutput) -> list[Verdict]:
        """Walk every session's judged rows in order and emit the target's tokens.

        The walk ends at the first token that differs from its draft, at the end of the draft, or
        where the stream ends. Nothing is committed yet.
        """
        results = _head_results(shares, output)
        verdicts, first = [], 0
        for share in shares:
            if share.judged:
                emitted = self._walk(share, results[first : first + share.judged])
                verdicts.append(Verdict(share, emitted, share.work.feed - 1 + len(emitted)))
            else:
                verdicts.append(Verdict(share, [], share.work.feed))
            first += share.judged
        return verdicts

    def _walk(self, share: Share, results: Sequence[RowResult]) -> list[int]:
        session, drafted = share.work.session, share.draft.tokens
        emitted: list[int] = []
        for index, result in enumerate(results):
            guess = _guess(share.draft, index) if index < len(drafted) else None
            position = len(session.stream.tokens)
            token = session.chooser.choose(result, position, session.stream.history, guess)
            if session.params.logprobs is not None:
                assert result.logits is not None
                entry = token_logprob(result.logits, token, session.params.logprobs)
                session.logprobs.append(entry)
            session.stream.emit(token)
            emitted.append(token)
            if session.finished or guess is None or token != guess.token:
                break
        # Every token but the last let the walk go on, so it equalled its draft.
        session.telemetry.record(len(drafted), len(emitted) - 1)
        self._watch(len(drafted), len(emitted) - 1)
        session.telemetry.prompts += int(share.work.feed > 1 or session.clock.first_token is None)
        return emitted

    def _watch(self, drafted: int, accepted: int) -> None:
        """Say once if drafting does not help, which otherwise nothing would show."""
        self._tally.drafted += drafted
        self._tally.accepted += accepted
        judged, kept = self._tally.drafted, self._tally.accepted
        if not self._useless_reported and judged >= USELESS_AFTER and kept < judged * USELESS_SHARE:
            self._useless_reported = True
            _log.warning(
                "the target accepted %d of %d drafted tokens: the drafter may not belong to this "
                "model or this kind of text",
                kept,
                judged,
            )

    # -- commit ----------------------------------------------------------------------------------

    def commit(self, verdicts: Sequence[Verdict], output: PassOutput) -> None:
        """Commit the kept rows to the target cache, then let the drafter observe them."""
        observed: list[tuple[SpecSession, DraftState, CommittedRows]] = []
        for index, verdict in enumerate(verdicts):
            session = verdict.share.work.session
            output.settle(index, verdict.rows)
            start = session.stream.committed
            session.stream.committed = start + verdict.rows
            state = session.draft_state
            if state is not None and not session.finished:
                tokens = verdict.share.tokens[: verdict.rows]
                rows = CommittedRows(tokens, start, output.taps(index, verdict.rows))
                observed.append((session, state, rows))
        self._observe(observed)

    def _observe(self, entries: Sequence[tuple[SpecSession, DraftState, CommittedRows]]) -> None:
        """Feed the drafter. A session whose state did not follow goes on without it."""
        if self._drafter is None or not entries:
            return
        fault: Exception | None = None
        try:
            self._drafter.observe(
                [state for _, state, _ in entries], [rows for *_, rows in entries]
            )
        except Exception as caught:
            fault = caught
        for session, state, rows in entries:
            if fault is not None and state.length == rows.start:
                self._observe_alone(state, rows)
            if state.length != session.stream.committed:
                self._fault(session, DrafterFault(f"it did not observe committed rows: {fault!r}"))
                session.drop_drafter()

    def _observe_alone(self, state: DraftState, rows: CommittedRows) -> None:
        """Retry one session after a batch failed, so that its neighbours' fault is not its own."""
        assert self._drafter is not None
        try:
            self._drafter.observe([state], [rows])
        except Exception as fault:
            _log.debug("observing alone failed: %r", fault)


def _state(share: Share) -> DraftState:
    state = share.work.session.draft_state
    assert state is not None, "a session without a drafter was asked to draft"
    return state


def _guess(draft: Proposal, index: int) -> Guess:
    q: NDArray[Any] | None = None
    if draft.probabilities is not None:
        q = draft.probabilities[index].numpy()
    return Guess(draft.tokens[index], q)


def _head_results(shares: Sequence[Share], output: PassOutput) -> list[RowResult]:
    """Run the head once per demand over all judged rows that share it."""
    rows: dict[Demand, list[int]] = {demand: [] for demand in Demand}
    sessions: list[tuple[SpecSession, int]] = []
    for share in shares:
        session = share.work.session
        base = len(session.stream.tokens)
        for index in range(share.judged):
            rows[session.chooser.demand].append(len(sessions))
            sessions.append((session, base + index))
    results = [RowResult()] * len(sessions)
    for row, token in _paired(rows[Demand.ARGMAX], output.argmax):
        results[row] = RowResult(choice=token)

    def draw(drawn: Sequence[int]) -> list[int]:
        temperatures = [sessions[row][0].params.temperature for row in drawn]
        seeds = [sessions[row][0].seed for row in drawn]
        return output.draw(drawn, temperatures, seeds, [sessions[row][1] for row in drawn])

    for row, token in _paired(rows[Demand.DRAW], draw):
        results[row] = RowResult(choice=token)
    if rows[Demand.LOGITS]:
        logits = output.logits(rows[Demand.LOGITS])
        for row, values in zip(rows[Demand.LOGITS], logits, strict=True):
            results[row] = RowResult(logits=values)
    return results


def _paired(
    rows: list[int], operator: Callable[[Sequence[int]], list[int]]
) -> list[tuple[int, int]]:
    """Rows with the operator's token for each; the operator is not called without rows."""
    return list(zip(rows, operator(rows), strict=True)) if rows else []
