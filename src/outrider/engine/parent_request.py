"""The completions of one request: they share a prompt, and differ in their seeds."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.request import Request
from outrider.session.session import SpecSession
from outrider.types.output import (
    CompletionOutput,
    Delta,
    Metrics,
    RequestOutput,
    Timings,
)
from outrider.types.telemetry import Telemetry


class ParentRequest:
    """One request's sessions. The first feeds the prompt; the others fork off its rows.

    Attributes:
        sessions: one per completion, in order.
        error: why the request failed, None if it did not.
    """

    def __init__(
        self, request_id: str, request: Request, sessions: Sequence[SpecSession], drafter: str
    ) -> None:
        self.sessions = list(sessions)
        self.error: Exception | None = None
        self._request_id = request_id
        self._request = request
        self._drafter = drafter
        self._unforked = list(sessions[1:])
        self._reported = [0] * len(self.sessions)

    @property
    def finished(self) -> bool:
        """Whether every completion has ended."""
        return all(session.finished for session in self.sessions)

    def fork_ready(self) -> list[SpecSession]:
        """Siblings that can start now, each holding the prompt's rows but the last.

        The last prompt token stays their tip: feeding it again gives the row that their first
        token is drawn from, with the bits that the first session saw.
        """
        first = self.sessions[0]
        shared = first.stream.prompt_length - 1
        if not self._unforked or first.stream.committed < shared:
            return []
        for session in self._unforked:
            session.adopt_prompt(first, shared)
        return list(self._unforked)

    def mark_forked(self) -> None:
        """Count siblings that were ready as started: ``fork_ready`` has none any more."""
        self._unforked = []

    def fail(self, error: Exception) -> None:
        """End every completion that still runs; what was decided so far stays."""
        self.error = error
        self._unforked = []
        for session in self.sessions:
            session.stream.fail()

    def delta(self, session: SpecSession) -> Delta | None:
        """What was added to a completion since ``mark_reported``, or None if nothing."""
        fresh = session.stream.output[self._reported[session.index] :]
        text = session.stream.unread
        if not fresh and not text:
            return None
        return Delta(
            self._request_id, session.index, text, tuple(fresh), session.stream.finish_reason
        )

    def mark_reported(self, session: SpecSession) -> None:
        """Count what a completion has as reported."""
        self._reported[session.index] = len(session.stream.output)
        session.stream.mark_read()

    def output(self) -> RequestOutput:
        """All completions as they stand."""
        speculation = Telemetry()
        for session in self.sessions:
            speculation.add(session.telemetry)
        return RequestOutput(
            request_id=self._request_id,
            prompt=self._request.prompt,
            prompt_token_ids=list(self._request.prompt_token_ids),
            outputs=[_completion(session) for session in self.sessions],
            finished=self.finished,
            metrics=Metrics(_timings(self.sessions), speculation, self._drafter),
            error=self.error,
        )


def _completion(session: SpecSession) -> CompletionOutput:
    stream = session.stream
    return CompletionOutput(
        index=session.index,
        text=stream.text,
        token_ids=stream.output,
        finish_reason=stream.finish_reason,
        stop_reason=stream.stop_reason,
        logprobs=list(session.logprobs) if session.params.logprobs is not None else None,
        seed=session.seed,
    )


def _timings(sessions: Sequence[SpecSession]) -> Timings:
    """Times of the whole request: its first token is the earliest, its end the latest."""
    times = [session.times for session in sessions]
    arrived = times[0].arrived
    started = min((t.started for t in times if t.started is not None), default=arrived)
    first = min((t.first_token for t in times if t.first_token is not None), default=started)
    last = max((t.last_token for t in times if t.last_token is not None), default=first)
    return Timings(started - arrived, first - started, last - first)
