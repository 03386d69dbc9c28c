"""One round for a batch of sessions: draft, judge, commit. Plain decoding is an empty draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from outrider.drafters.base import CommittedRows, DraftState, Proposal
from outrider.session.drafting import Drafting
from outrider.session.pass_output import PassOutput
from outrider.session.session import SpecSession
from outrider.session.session_rows import SessionRows
from outrider.session.verdict import Verdict
from outrider.types.errors import InvariantError, NumericsError
from outrider.types.output import TokenLogprob
from outrider.verify.logprobs import token_logprob
from outrider.verify.samplers import DraftToken, HeadOutput, RowResult


class Rounds:
    """Runs the three phases of a round around the target pass."""

    def __init__(self, drafting: Drafting) -> None:
        """``drafting`` stands between the rounds and the drafter."""
        self._drafting = drafting

    def draft(self, batch: Sequence[SessionRows]) -> None:
        """Put a draft into every session's rows for which there is one."""
        self._drafting.draft(batch)

    def judge(self, batch: Sequence[SessionRows], output: PassOutput) -> list[Verdict]:
        """Walk every session's judged rows in order and emit the target's tokens.

        The walk ends at the first token that differs from its draft, at the end of the draft, or
        where the stream ends. Nothing is committed yet. What goes wrong in one session's rows is
        that session's fault: it is set back, and the others go on.
        """
        results = _head_results(batch, output)
        verdicts, first = [], 0
        for index, rows in enumerate(batch):
            mine = results[first : first + rows.judged]
            first += rows.judged
            try:
                verdicts.append(_judged(rows, mine, _Soundness(output, index)))
            except Exception as fault:  # whatever it is, the neighbours must not suffer
                rows.roll_back()
                verdicts.append(Verdict(rows, [], 0, fault))
        return verdicts

    def commit(self, verdicts: Sequence[Verdict], output: PassOutput) -> None:
        """Commit the kept rows to the target cache, then let the drafter observe them."""
        observed: list[tuple[SpecSession, DraftState, CommittedRows]] = []
        for index, verdict in enumerate(verdicts):
            if verdict.fault is not None:
                continue
            session = verdict.rows.session
            output.commit(index, verdict.kept)
            start = session.stream.committed
            session.stream.committed = start + verdict.kept
            state = session.draft_state
            # A stream that just ended is observed too: its siblings fork off its rows.
            if state is not None:
                tokens = verdict.rows.tokens[: verdict.kept]
                committed = CommittedRows(tokens, start, output.taps(index, verdict.kept))
                observed.append((session, state, committed))
        self._drafting.observe(observed)
        for verdict in verdicts:
            if verdict.emitted:
                self._record(verdict)

    def _record(self, verdict: Verdict) -> None:
        """Count a round that decided tokens."""
        rows, session = verdict.rows, verdict.rows.session
        # Every token but the last let the walk go on, so it equalled its draft.
        self._drafting.record(rows, len(verdict.emitted) - 1)
        # Where one token of the prompt was left to feed, its round may have drafted.
        alone = session.times.first_token is None and rows.draft_length == 0
        session.telemetry.prompts += int(len(rows.fed) > 1 or alone)


@dataclass(frozen=True)
class _Soundness:
    """Whether the rows of one session are numbers.

    Attributes:
        output: the pass.
        index: of the session in its batch.
    """

    output: PassOutput
    index: int

    def check(self, count: int) -> None:
        """Check the states of the session's first ``count`` rows.

        A drafted row that the walk does not reach may be anything: plain decoding never sees it.

        Raises:
            NumericsError: one is not finite.
        """
        if self.output.finite_rows(self.index) < count:
            raise self.error(count)

    def error(self, count: int) -> NumericsError:
        """What to raise if one of the first rows, or what the head made of it, is bad."""
        return NumericsError(self.output.first_fault(self.index, count))


def _judged(rows: SessionRows, results: Sequence[RowResult], soundness: _Soundness) -> Verdict:
    """Decide one session's tokens."""
    soundness.check(len(rows.fed))
    if not rows.judged:
        return Verdict(rows, [], len(rows.fed))
    emitted = _walk(rows, results, soundness)
    return Verdict(rows, emitted, len(rows.fed) - 1 + len(emitted))


def _walk(rows: SessionRows, results: Sequence[RowResult], soundness: _Soundness) -> list[int]:
    session, drafted = rows.session, rows.draft.tokens
    emitted: list[int] = []
    for index, result in enumerate(results):
        count = len(rows.fed) + index
        soundness.check(count)
        if not result.finite:
            raise soundness.error(count)
        draft_token = _draft_token(rows.draft, index) if index < len(drafted) else None
        position = len(session.stream.tokens)
        token = session.sampler.sample(result, position, session.stream.history, draft_token)
        if session.params.logprobs is not None:
            session.logprobs.append(_logprob(result, token, session.params.logprobs))
        session.stream.emit(token)
        emitted.append(token)
        if session.finished or draft_token is None or token != draft_token.token:
            break
    return emitted


def _logprob(result: RowResult, token: int, count: int) -> TokenLogprob:
    if result.logits is None:
        raise InvariantError("log-probabilities were asked for, but no logits")
    return token_logprob(result.logits, token, count)


def _draft_token(draft: Proposal, index: int) -> DraftToken:
    q: NDArray[Any] | None = None
    if draft.probabilities is not None:
        q = draft.probabilities[index].numpy()
    return DraftToken(draft.tokens[index], q)


def _head_results(batch: Sequence[SessionRows], output: PassOutput) -> list[RowResult]:
    """Run the head once per kind of output over all judged rows that share it."""
    rows: dict[HeadOutput, list[int]] = {kind: [] for kind in HeadOutput}
    sessions: list[tuple[SpecSession, int]] = []
    for mine in batch:
        session = mine.session
        base = len(session.stream.tokens)
        for index in range(mine.judged):
            rows[session.sampler.head_output].append(len(sessions))
            sessions.append((session, base + index))
    results = [RowResult()] * len(sessions)
    for row, token in _paired(rows[HeadOutput.ARGMAX], output.argmax):
        results[row] = RowResult(choice=token)

    def draw(drawn: Sequence[int]) -> list[int]:
        temperatures = [sessions[row][0].params.temperature for row in drawn]
        seeds = [sessions[row][0].seed for row in drawn]
        return output.draw(drawn, temperatures, seeds, [sessions[row][1] for row in drawn])

    for row, token in _paired(rows[HeadOutput.DRAW], draw):
        results[row] = RowResult(choice=token)
    if rows[HeadOutput.LOGITS]:
        logits = output.logits(rows[HeadOutput.LOGITS])
        for row, values in zip(rows[HeadOutput.LOGITS], logits, strict=True):
            results[row] = RowResult(logits=values)
    return results


def _paired(
    rows: list[int], operator: Callable[[Sequence[int]], list[int]]
) -> list[tuple[int, int]]:
    """Rows with the operator's token for each; the operator is not called without rows."""
    return list(zip(rows, operator(rows), strict=True)) if rows else []
