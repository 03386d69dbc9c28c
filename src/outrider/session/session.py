"""A session: one completion of one request, with its caches, drafting state and telemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from outrider.caches.paged import PagedCache
from outrider.draft_length.policy import DraftLengthPolicy
from outrider.drafters.base import DraftSampling, DraftState
from outrider.session.stream import TokenStream
from outrider.types.errors import InvariantError
from outrider.types.output import TokenLogprob
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import Telemetry
from outrider.verify.samplers import Sampler

_log = logging.getLogger("outrider")


@dataclass
class Clock:
    """Monotonic times of a session in seconds; None until it happens."""

    arrived: float
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None


@dataclass(frozen=True)
class Mark:
    """Where a session stood at a round boundary.

    Attributes:
        tokens: of its stream.
        committed: of them, held by the caches.
        observed: rows that its drafter had observed, 0 without one.
        sampler: what its sampler had counted.
    """

    tokens: int
    committed: int
    observed: int
    sampler: tuple[int, ...]


class SpecSession:
    """Everything one completion carries between rounds.

    Attributes:
        request_id, index: which completion of which request.
        params: its sampling parameters.
        seed: the key of its noise.
        stream: tokens and text.
        cache: target rows; its length is ``stream.committed`` at every round boundary.
        sampler: its rule for the target's token.
        begin_drafting: returns a fresh drafter state; None if it never drafts.
        draft_sampling: how its target draws, for the drafter.
        draft_state: the drafter's state, None if it does not draft.
        paused: it observes but does not draft.
        policy: chooses its draft lengths; None drafts as many as are asked for.
        draft_end: position from which nothing is drafted any more, None without such a limit.
        telemetry: counters of its rounds.
        logprobs: one entry per emitted token, if asked for.
        clock: when things happened.
    """

    def __init__(
        self,
        request_id: str,
        index: int,
        params: SamplingParams,
        seed: int,
        stream: TokenStream,
        cache: PagedCache,
        sampler: Sampler,
        arrived: float,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.params = params
        self.seed = seed
        self.stream = stream
        self.cache = cache
        self.sampler = sampler
        self.begin_drafting: Callable[[DraftSampling], DraftState] | None = None
        self.draft_sampling = DraftSampling()
        self.draft_state: DraftState | None = None
        self.paused = False
        self.policy: DraftLengthPolicy | None = None
        self.draft_end: int | None = None
        self.telemetry = Telemetry()
        self.logprobs: list[TokenLogprob] = []
        self.clock = Clock(arrived)

    @property
    def pending(self) -> int:
        """Decided tokens to feed; 1 while decoding."""
        return self.stream.pending

    @property
    def draftable(self) -> int:
        """Most draft tokens that could be of use in the next round.

        Drafting needs every committed row observed and only the tip pending; the round emits one
        token more than it accepts, so the last token of the stream is never worth drafting.
        """
        ready = (
            self.draft_state is not None
            and not self.paused
            and self.pending == 1
            and self.draft_state.length == self.stream.committed
        )
        if not ready:
            return 0
        useful = self.stream.remaining - 1
        if self.draft_end is not None:
            useful = min(useful, self.draft_end - len(self.stream.tokens))
        return max(useful, 0)

    @property
    def finished(self) -> bool:
        """Whether the stream has ended."""
        return self.stream.finish_reason is not None

    @property
    def pages_held(self) -> int:
        """Pages in its table."""
        return len(self.cache.pages)

    def pages_needed(self, rows: int) -> int:
        """Pages that feeding ``rows`` rows would take."""
        return self.cache.pages_needed(rows)

    def stamp(self, started: float, ended: float) -> None:
        """Note a round that ran from ``started`` to ``ended``."""
        if self.clock.started is None:
            self.clock.started = started
        if self.stream.history.emitted:
            if self.clock.first_token is None:
                self.clock.first_token = ended
            self.clock.last_token = ended

    def mark(self) -> Mark:
        """Where it stands now, at a round boundary."""
        state = self.draft_state
        return Mark(
            len(self.stream.tokens),
            self.stream.committed,
            0 if state is None else state.length,
            self.sampler.mark(),
        )

    def roll_back(self, mark: Mark) -> None:
        """Return to ``mark``, taken when the round began that has failed.

        Tokens, text, log-probabilities, rows, pages and drafter are as they were: the next round
        decides the same tokens again. A drafter that cannot go back is given up, like one that does
        not follow.
        """
        self.stream.roll_back(mark.tokens, mark.committed)
        self.cache.roll_back(mark.committed)
        self.sampler.roll_back(mark.sampler)
        del self.logprobs[self.stream.history.emitted :]
        if self.draft_state is None:
            return
        try:  # whatever its length says: a part of it may have moved on
            self.draft_state.roll_back(mark.observed)
        except Exception:
            _log.warning("a drafter could not be set back after a fault; decoding plainly")
            self.drop_drafter()

    def adopt_prompt(self, first: SpecSession, rows: int) -> None:
        """Start from the first ``rows`` rows that another session of this prompt holds.

        The pages are shared until one of the two writes to them.
        """
        self.cache.release()
        self.cache = first.cache.fork()
        self.cache.truncate(rows)
        self.stream.committed = rows
        if self.draft_state is not None:
            self.draft_state.release()
            self.draft_state = None
        if first.draft_state is not None:
            self.draft_state = first.draft_state.fork(self.draft_sampling)
            self.draft_state.truncate(rows)

    def start_drafting(
        self, begin: Callable[[DraftSampling], DraftState], sampling: DraftSampling
    ) -> None:
        """Draft from now on, with states that ``begin`` returns."""
        self.begin_drafting = begin
        self.draft_sampling = sampling
        self.draft_state = begin(sampling)

    def demote(self) -> None:
        """Decode plainly from the next round on; the stream cannot tell.

        The drafter keeps observing, which is cheap, so that promotion is immediate.
        """
        self.paused = True

    def promote(self) -> None:
        """Draft again from the next round on."""
        self.paused = False

    def drop_drafter(self) -> None:
        """Go on without drafting; the stream cannot tell."""
        self.begin_drafting = None
        if self.draft_state is not None:
            self.draft_state.release()
            self.draft_state = None

    def restart(self) -> None:
        """Return every page; feeding the stream's tokens again rebuilds the same rows."""
        self.cache.release()
        self.stream.committed = 0
        if self.draft_state is not None and self.begin_drafting is not None:
            self.draft_state.release()
            self.draft_state = self.begin_drafting(self.draft_sampling)

    def release(self) -> None:
        """Return every page for good. The stream keeps its tokens and text."""
        self.cache.release()
        self.drop_drafter()

    def audit(self) -> None:
        """Check the round-boundary invariants.

        Raises:
            InvariantError: a cache's length is not the number of committed tokens.
        """
        committed = self.stream.committed
        if not 0 <= committed < len(self.stream.tokens):
            raise InvariantError("the tip is committed")
        self.cache.audit(committed)
        if self.draft_state is not None and self.draft_state.length != committed:
            raise InvariantError("draft rows differ from committed rows")
        if len(self.logprobs) != (
            0 if self.params.logprobs is None else self.stream.history.emitted
        ):
            raise InvariantError("log-probabilities differ from emitted tokens")
