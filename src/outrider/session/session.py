"""A session: one completion of one request, with its caches, drafting state and telemetry."""

from __future__ import annotations

import logging

from outrider.caches.paged import PagedCache
from outrider.drafters.base import DraftState
from outrider.session.mark import Mark
from outrider.session.session_drafter import SessionDrafter
from outrider.session.stream import TokenStream
from outrider.session.timestamps import Timestamps
from outrider.types.errors import InvariantError
from outrider.types.output import TokenLogprob
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import Telemetry
from outrider.verify.samplers import Sampler

_log = logging.getLogger("outrider")


class SpecSession:
    """Everything one completion carries between rounds.

    Attributes:
        request_id, index: which completion of which request.
        seed: the key of its noise.
        stream: tokens and text.
        cache: target rows; its length is ``stream.committed`` at every round boundary.
        sampler: its rule for the target's token.
        drafter: what it drafts with; None decodes plainly.
        telemetry: counters of its rounds.
        logprobs: one entry per emitted token, if asked for.
        times: when things happened.
    """

    def __init__(
        self,
        request_id: str,
        index: int,
        seed: int,
        stream: TokenStream,
        cache: PagedCache,
        sampler: Sampler,
        drafter: SessionDrafter | None,
        arrived: float,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.seed = seed
        self.stream = stream
        self.cache = cache
        self.sampler = sampler
        self.drafter = drafter
        self.telemetry = Telemetry()
        self.logprobs: list[TokenLogprob] = []
        self.times = Timestamps(arrived)

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""
        return self.stream.params

    @property
    def draft_state(self) -> DraftState | None:
        """What the drafter keeps for it, None without one."""
        return None if self.drafter is None else self.drafter.state

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
        drafter = self.drafter
        if drafter is None or drafter.paused or self.pending != 1:
            return 0
        if drafter.state.length != self.stream.committed:
            return 0
        return drafter.room(len(self.stream.tokens), self.stream.remaining - 1)

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
        self.times.stamp(started, ended, self.stream.history.emitted)

    def mark(self) -> Mark:
        """Where it stands now, at a round boundary."""
        state = self.draft_state
        return Mark(
            len(self.stream.tokens),
            self.stream.committed,
            0 if state is None else state.length,
            self.sampler.mark(),
            self.telemetry.snapshot(),
        )

    def roll_back(self, mark: Mark) -> None:
        """Return to ``mark``, taken when the round began that has failed.

        Tokens, text, log-probabilities, rows, pages, counters and drafter are as they were: the
        next round decides the same tokens again. A drafter that cannot go back is given up, like
        one that does not follow.
        """
        self.stream.roll_back(mark.tokens, mark.committed)
        self.cache.roll_back(mark.committed)
        self.sampler.roll_back(mark.sampler)
        del self.logprobs[self.stream.history.emitted :]
        self.telemetry = mark.telemetry.snapshot()
        if self.drafter is None:
            return
        try:  # whatever its length says: a part of it may have moved on
            self.drafter.state.roll_back(mark.observed)
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
        if self.drafter is None:
            return
        if first.drafter is None:
            self.drop_drafter()
        else:
            self.drafter.adopt(first.drafter, rows)

    def demote(self) -> None:
        """Decode plainly from the next round on; the stream cannot tell.

        The drafter keeps observing, which is cheap, so that promotion is immediate.
        """
        if self.drafter is not None:
            self.drafter.paused = True

    def promote(self) -> None:
        """Draft again from the next round on."""
        if self.drafter is not None:
            self.drafter.paused = False

    def drop_drafter(self) -> None:
        """Go on without drafting; the stream cannot tell."""
        if self.drafter is not None:
            self.drafter.release()
            self.drafter = None

    def restart(self) -> None:
        """Return every page; feeding the stream's tokens again rebuilds the same rows."""
        self.cache.release()
        self.stream.committed = 0
        if self.drafter is not None:
            self.drafter.restart()

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
        state = self.draft_state
        if state is not None and state.length != committed:
            raise InvariantError("draft rows differ from committed rows")
        if len(self.logprobs) != (
            0 if self.params.logprobs is None else self.stream.history.emitted
        ):
            raise InvariantError("log-probabilities differ from emitted tokens")
