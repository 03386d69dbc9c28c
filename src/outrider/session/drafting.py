"""The first phase of a round: ask the drafter, keep what is sound and worth a row each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import torch

from outrider.draft_length.decision import DraftDecision, DraftMode
from outrider.draft_length.goodput import Goodput
from outrider.draft_length.outcome import DraftOutcome
from outrider.draft_length.policy import DraftLengthPolicy
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
from outrider.session.session_drafter import SessionDrafter
from outrider.session.session_rows import SessionRows
from outrider.types.errors import InvariantError
from outrider.types.telemetry import Telemetry

_log = logging.getLogger("outrider")

#: Drafted tokens after which a share of accepted ones below USELESS_SHARE is reported: late enough
#: that it is not one text's bad luck, early enough to be seen. Both set by hand.
USELESS_AFTER: Final = 2000
USELESS_SHARE: Final = 0.01


class Drafting:
    """Everything between a drafter and the rounds. Whatever a drafter does, decoding goes on.

    A fault leaves its session plain for the round; it is counted in the session's telemetry, and
    the first one is logged.
    """

    def __init__(
        self, drafter: Drafter | None, vocab_size: int, threshold: float, goodput: Goodput | None
    ) -> None:
        """Bind a drafter.

        Args:
            drafter: None decodes plainly.
            vocab_size: token ids at or above it are faults.
            threshold: a draft is cut before its first token with a confidence below this.
            goodput: prices by which lengths are chosen; None drafts as many tokens as are asked for
                and keeps them all.
        """
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._threshold = threshold
        self._goodput = goodput
        self._tally = Telemetry()
        self._fault_reported = False
        self._useless_reported = False

    def begin(self, sampling: DraftSampling) -> SessionDrafter | None:
        """What a new session drafts with, None if nothing drafts.

        Args:
            sampling: how the session's target draws.
        """
        if self._drafter is None:
            return None
        policy = None
        if self._goodput is not None:
            policy = DraftLengthPolicy(self._goodput, sampling.temperature, self._drafter.max_draft)
        return SessionDrafter(self._drafter, sampling, policy)

    # -- propose ---------------------------------------------------------------------------------

    def draft(self, batch: Sequence[SessionRows]) -> None:
        """Put a draft into every session's rows for which one is sound and worth it."""
        if self._drafter is None:
            return
        asked = [rows for rows in batch if rows.draft_length > 0]
        requests = [_request(rows) for rows in asked]
        for rows, proposal in zip(asked, _answers(self._drafter, requests), strict=True):
            rows.draft = self._cut(rows, self._checked(rows, proposal))

    def _checked(self, rows: SessionRows, proposal: Proposal | DrafterFault) -> Proposal:
        """The proposal if it is sound, cut to what was asked for; an empty one if it is not."""
        if isinstance(proposal, DrafterFault):
            return self._fault(rows.session, proposal)
        try:
            reason = self._defect(proposal)
        except Exception as fault:  # a malformed proposal is a fault like any other
            reason = repr(fault)
        if reason:
            return self._fault(rows.session, DrafterFault(reason))
        # Whatever kind of integers they were.
        tokens = [int(token) for token in proposal.tokens]
        q, confidences = proposal.probabilities, proposal.confidences
        sound = Proposal(tokens, q, confidences, proposal.copied)
        return _first(sound, rows.draft_length)

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

    def _cut(self, rows: SessionRows, proposal: Proposal) -> Proposal:
        """Keep the tokens that are confident enough, and worth the rows they cost.

        Both rules look at a token's confidence given the tokens before it, never at the target's
        verdict, so even rejection sampling stays lossless.
        """
        keep = len(proposal.tokens)
        if proposal.confidences:
            keep = confident(proposal.confidences, self._threshold)
        policy, decision = _policy(rows), rows.decision
        if policy is not None and decision is not None and keep:
            keep = policy.keep(decision, keep, proposal.confidences[:keep], proposal.copied)
        return _first(proposal, keep)

    def _fault(self, session: SpecSession, fault: DrafterFault) -> Proposal:
        session.telemetry.faults += 1
        if not self._fault_reported:
            self._fault_reported = True
            _log.warning("drafter fault, decoding plainly for the round: %s", fault)
        return Proposal()

    # -- learn -----------------------------------------------------------------------------------

    def record(self, rows: SessionRows, accepted: int) -> None:
        """Note one verdict; say once if drafting does not help, which nothing else would show."""
        session, draft = rows.session, rows.draft
        drafted = len(draft.tokens)
        session.telemetry.record(drafted, accepted)
        policy = _policy(rows)
        if policy is not None and rows.decision is not None:
            outcome = DraftOutcome(
                drafted, accepted, session.finished, draft.confidences, draft.copied
            )
            policy.record(rows.decision, outcome)
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

    def price(
        self, batch: Sequence[SessionRows], draft_seconds: float, pass_seconds: float
    ) -> None:
        """Note what a round of decoding cost; rounds that feed prompts have another shape.

        Args:
            batch: the rows of the round.
            draft_seconds: what asking the drafter took.
            pass_seconds: what the pass and its verdict took.
        """
        if self._goodput is None or any(len(rows.fed) > 1 for rows in batch):
            return
        count = sum(len(rows.tokens) for rows in batch)
        drafting = any(rows.draft.tokens for rows in batch)
        self._goodput.observe(count, len(batch), draft_seconds if drafting else None, pass_seconds)

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


def _policy(rows: SessionRows) -> DraftLengthPolicy | None:
    drafter = rows.session.drafter
    return None if drafter is None else drafter.policy


def _request(rows: SessionRows) -> DraftRequest:
    """What to ask for, as the session's policy decides; without one, all that can be used."""
    session, most = rows.session, rows.draft_length
    if session.draft_state is None:
        raise InvariantError("a session without a drafter was asked to draft")
    policy = _policy(rows)
    rows.decision = DraftDecision(DraftMode.FULL, most) if policy is None else policy.decide(most)
    return DraftRequest(session.draft_state, session.stream.tip, most, rows.decision.asked)


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
