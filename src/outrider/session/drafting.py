"""The first phase of a round: ask the drafter, keep what is sound and worth a row each."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from outrider.drafters.base import (
    CommittedRows,
    Drafter,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    DraftState,
    Proposal,
    confident,
)
from outrider.kernels.tensors import index_range, token_ids
from outrider.session.session import SpecSession
from outrider.session.share import Share
from outrider.session.worth import Worth
from outrider.types.errors import InvariantError
from outrider.types.telemetry import Telemetry

_log = logging.getLogger("outrider")

#: Drafted tokens after which a share of accepted ones below USELESS_SHARE is reported.
USELESS_AFTER: Final = 2000
USELESS_SHARE: Final = 0.01
#: Rows that a profile observes per draft, about as many as a good round commits.
PROFILE_ROWS: Final = 4
#: Drafts of a profile.
PROFILE_TURNS: Final = 3


class Drafting:
    """Everything between a drafter and the rounds. Whatever a drafter does, decoding goes on.

    A fault leaves its session plain for the round; it is counted in the session's telemetry, and
    the first one is logged.

    Attributes:
        worth: prices by which drafts are cut; None keeps them whole.
    """

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
        self.worth: Worth | None = None
        self._tally = Telemetry()
        self._fault_reported = False
        self._useless_reported = False

    # -- propose ---------------------------------------------------------------------------------

    def draft(self, shares: Sequence[Share]) -> None:
        """Put a draft into every share for which one is sound and worth it."""
        if self._drafter is None:
            return
        asked = [share for share in shares if share.work.draft_length > 0]
        requests = [self._request(share) for share in asked]
        for share, proposal in zip(asked, _answers(self._drafter, requests), strict=True):
            share.draft = self._cut(share, self._checked(share, proposal))

    def _request(self, share: Share) -> DraftRequest:
        """What to ask for: what costs nothing only, where no more is expected to pay."""
        session, most = share.work.session, share.work.draft_length
        state, pace, budget = session.draft_state, session.pace, most
        if state is None:
            raise InvariantError("a session without a drafter was asked to draft")
        if pace is not None and self.worth is not None:
            budget = pace.asked if pace.wants(most, self.worth) else 0
        return DraftRequest(state, session.stream.tip, most, budget)

    def _checked(self, share: Share, proposal: Proposal | DrafterFault) -> Proposal:
        """The proposal if it is sound, cut to what was asked for; an empty one if it is not."""
        if isinstance(proposal, DrafterFault):
            return self._fault(share.work.session, proposal)
        try:
            reason = self._defect(proposal)
        except Exception as fault:  # a malformed proposal is a fault like any other
            reason = repr(fault)
        if reason:
            return self._fault(share.work.session, DrafterFault(reason))
        # Whatever kind of integers they were.
        tokens = [int(token) for token in proposal.tokens]
        q, confidences = proposal.probabilities, proposal.confidences
        sound = Proposal(tokens, q, confidences, proposal.copied)
        return _first(sound, share.work.draft_length)

    def _defect(self, proposal: Proposal) -> str | None:
        """Why a proposal cannot be used, or None."""
        for token in proposal.tokens:
            if not 0 <= token < self._vocab_size:
                return f"token {token} is outside the vocabulary of {self._vocab_size}"
        if proposal.confidences and len(proposal.confidences) != len(proposal.tokens):
            return f"{len(proposal.confidences)} confidences for {len(proposal.tokens)} tokens"
        q = proposal.probabilities
        if q is not None:
            if tuple(q.shape) != (len(proposal.tokens), self._vocab_size):
                return f"probabilities have shape {tuple(q.shape)}"
            if not bool(torch.isfinite(q).all()) or bool((q < 0).any()):
                return "probabilities are not finite"
            drawn = q[index_range(0, len(proposal.tokens)), token_ids(proposal.tokens)]
            if not bool((drawn > 0).all()):
                return "a token has no probability of its own"
        return None

    def _cut(self, share: Share, proposal: Proposal) -> Proposal:
        """Keep the tokens that are confident enough, and worth the rows they cost.

        Both rules look at a token's confidence given the tokens before it, never at the target's
        verdict, so even rejection sampling stays lossless.
        """
        keep = len(proposal.tokens)
        if proposal.confidences:
            keep = confident(proposal.confidences, self._threshold)
        pace = share.work.session.pace
        if pace is not None and self.worth is not None and keep:
            keep = pace.keep(_first(proposal, keep), self.worth)
        return _first(proposal, keep)

    def _fault(self, session: SpecSession, fault: DrafterFault) -> Proposal:
        session.telemetry.faults += 1
        if not self._fault_reported:
            self._fault_reported = True
            _log.warning("drafter fault, decoding plainly for the round: %s", fault)
        return Proposal()

    def profile(self, taps: Tensor | None, longest: int) -> float:
        """Seconds of one full draft, the observation of its rows included.

        A scratch session observes a few rows and drafts; the first draft is a warm-up. A drafter
        that fails here fails in its rounds too, where faults are counted.

        Args:
            taps: tapped states of some rows, or None if the drafter reads none.
            longest: most rows of a session. Below four, nothing is worth a draft, and it is free.
        """
        if self._drafter is None:
            return 0.0
        seconds = [0.0]
        state = self._drafter.begin(DraftSampling())
        # Three turns, and a tip after the last of them, must have positions and tokens.
        most = min(longest, self._vocab_size, self._drafter.max_position or longest)
        count = min(PROFILE_ROWS, (most - 1) // PROFILE_TURNS)
        try:
            # No token comes twice: a copy would be found at once, and price the draft at nothing.
            for turn in range(PROFILE_TURNS if count > 0 else 0):
                start = turn * count
                tokens = list(range(start, start + count))
                seen = None if taps is None else taps[:count]
                rows = CommittedRows(tokens, start, seen)
                began = time.perf_counter()
                self._drafter.observe([state], [rows])
                whole = self._drafter.max_draft
                self._drafter.propose([DraftRequest(state, start + count, whole, whole)])
                seconds.append(time.perf_counter() - began)
        except Exception as fault:  # whatever a drafter does, decoding goes on
            _log.debug("profiling the drafter failed: %r", fault)
        finally:
            state.release()
        return min(seconds[2:], default=0.0)

    # -- learn -----------------------------------------------------------------------------------

    def record(self, share: Share, accepted: int) -> None:
        """Note one verdict; say once if drafting does not help, which nothing else would show."""
        session, drafted = share.work.session, len(share.draft.tokens)
        session.telemetry.record(drafted, accepted)
        if session.pace is not None:
            # Where the stream ended, the next token was not refused.
            told = _first(share.draft, accepted) if session.finished else share.draft
            session.pace.record(told, accepted)
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

    def observe(self, entries: Sequence[tuple[SpecSession, DraftState, CommittedRows]]) -> None:
        """Feed newly committed rows. A session whose state does not follow loses it."""
        if self._drafter is None or not entries:
            return
        fault: Exception | None = None
        try:
            self._drafter.observe(
                [state for _, state, _ in entries], [rows for *_, rows in entries]
            )
        except Exception as caught:  # whatever a drafter does, decoding goes on
            fault = caught
        for session, state, rows in entries:
            if fault is not None and state.length == rows.start:
                self._observe_alone(self._drafter, state, rows)
            if state.length != session.stream.committed:
                self._fault(session, DrafterFault(f"it did not observe committed rows: {fault!r}"))
                session.drop_drafter()

    @staticmethod
    def _observe_alone(drafter: Drafter, state: DraftState, rows: CommittedRows) -> None:
        """Retry one session after a batch failed, so that its neighbours' fault is not its own."""
        try:
            drafter.observe([state], [rows])
        except Exception as fault:  # reported by the caller through the length
            _log.debug("observing alone failed: %r", fault)


def _answers(
    drafter: Drafter, requests: Sequence[DraftRequest]
) -> Sequence[Proposal | DrafterFault]:
    """One answer per request.

    If the batch fails, each is asked alone: one bad neighbour must not cost the others.
    """
    if not requests:
        return []
    try:
        proposals = drafter.propose(requests)
    except Exception as fault:  # whatever a drafter does, decoding goes on
        if len(requests) > 1:
            return [_answers(drafter, [request])[0] for request in requests]
        return [DrafterFault(repr(fault))]
    if len(proposals) != len(requests):
        return [DrafterFault(f"{len(proposals)} answers for {len(requests)}")] * len(requests)
    return proposals


def _first(proposal: Proposal, count: int) -> Proposal:
    """The first ``count`` tokens of a proposal, with what belongs to them."""
    if len(proposal.tokens) <= count:
        return proposal
    q = proposal.probabilities
    return Proposal(
        proposal.tokens[:count],
        None if q is None else q[:count],
        proposal.confidences[:count],
        proposal.copied,
    )
