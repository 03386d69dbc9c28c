"""The engine: admits requests and runs rounds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from outrider.caches.pool import PagePool
from outrider.config.engine import EngineConfig
from outrider.config.kv import KvDtype
from outrider.draft_length.goodput import Goodput
from outrider.drafters.base import Drafter
from outrider.engine.admission import check_request
from outrider.engine.budget import CacheBudget, allocate
from outrider.engine.parent_request import ParentRequest
from outrider.engine.pricing import measured_goodput
from outrider.engine.request import Request
from outrider.engine.session_factory import SessionFactory
from outrider.kernels.isolation import isolated
from outrider.models.target import Target
from outrider.runner.runner import Runner
from outrider.scheduler.limits import Limits
from outrider.scheduler.scheduler import Scheduler
from outrider.session.drafting import Drafting
from outrider.session.round import Rounds
from outrider.session.session import SpecSession
from outrider.session.session_rows import SessionRows
from outrider.session.verdict import Verdict
from outrider.types.clock import SYSTEM_CLOCK, Clock
from outrider.types.errors import OutriderError, RequestError
from outrider.types.output import Delta, RequestOutput
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import RoundSeconds


class Engine:
    """Serves many requests over one target.

    ``add`` queues a request, ``step`` runs one round for everyone, ``output`` reads a request's
    state at any time; a finished request is kept until ``take`` or ``abort`` removes it. Calls from
    several threads wait for one another; ``cancel`` never waits.
    """

    @isolated()
    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        config: EngineConfig,
        budget: CacheBudget,
        goodput: Goodput | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Allocate pages and bind the parts of a round.

        Args:
            target: the model.
            drafter: None decodes plainly.
            config: limits and choices.
            budget: what the caches get.
            goodput: prices that are known beforehand; None measures them here.
            clock: everything is timed by it.

        Raises:
            RequestError: the system refuses the memory of the caches.
        """
        self._max_len = budget.max_model_len
        self._target = target = target.reaching(self._max_len)
        self._drafter = drafter
        self._clock = clock
        self._pool = PagePool(allocate(target, budget, config))
        draft_length = 0 if drafter is None else _draft_length(drafter, config)
        limits = Limits(config.max_num_seqs, config.max_num_batched_tokens, draft_length)
        pool = self._pool
        self._scheduler: Scheduler[SpecSession] = Scheduler(limits, lambda: pool.num_free)
        taps = () if drafter is None else drafter.taps
        self._runner = Runner(target.model, pool.store, taps, clock)
        if drafter is None or config.draft_length is not None:
            goodput = None
        elif goodput is None:
            goodput = measured_goodput(self._runner, drafter, pool, self._max_len, clock)
        self._drafting = Drafting(
            drafter, target.config.vocab_size, config.confidence_threshold, goodput
        )
        self._rounds = Rounds(self._drafting)
        self._sessions = SessionFactory(
            target, pool, self._drafting, self._max_len, config.verification
        )
        self._parents: dict[str, ParentRequest] = {}
        self._count = 0
        self._seconds = RoundSeconds()
        self._lock = threading.RLock()
        self._cancelled: deque[str] = deque()
        self._unsettled: list[Verdict] = []
        self._unreported: dict[SpecSession, ParentRequest] = {}

    @property
    def drafter_name(self) -> str:
        """The drafter's name, "none" without one."""
        return "none" if self._drafter is None else self._drafter.name

    @property
    def kv_cache_dtype(self) -> KvDtype:
        """How the target's keys and values are kept."""
        return self._pool.store.dtype

    @property
    def max_draft(self) -> int:
        """Most tokens that the drafter can propose in a round; 0 without one."""
        return 0 if self._drafter is None else self._drafter.max_draft

    @property
    def round_seconds(self) -> RoundSeconds:
        """Seconds that the rounds took so far, and how many of them went to the drafter."""
        return self._seconds

    @property
    def max_model_len(self) -> int:
        """Most tokens of a session, prompt and output."""
        return self._max_len

    @property
    def has_unfinished(self) -> bool:
        """Whether any request still runs or waits."""
        with self._turn():
            return any(not parent.finished for parent in self._parents.values())

    @property
    def preemptions(self) -> int:
        """Sessions displaced so far for want of pages."""
        return self._scheduler.preemptions

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the engine for oneself, with an interrupted round and all cancellations finished.

        Whatever is raised inside, by an interrupt between any two lines for one, leaves page counts
        that are right: page tables are, and counts are made anew from them.
        """
        with self._lock:
            try:
                if self._unsettled:
                    self._settle()
                while self._cancelled:
                    self._remove(self._cancelled[0])
                    self._cancelled.popleft()
                yield
            except (OutriderError, KeyError):  # an answer to the caller; nothing was interrupted
                raise
            except BaseException:
                self._recover()
                raise

    # -- requests --------------------------------------------------------------------------------

    @isolated()
    def add(self, request: Request) -> str:
        """Queue a request and return its id.

        Raises:
            RequestError: the prompt or a parameter cannot be served.
        """
        prompt = [int(token) for token in request.prompt_token_ids]
        self.check(prompt, request.params)
        with self._turn():
            request_id = request.request_id or self._next_id()
            if request_id in self._parents:
                raise RequestError("request_id", f"{request_id!r} is in use")
            arrived = self._clock()
            sessions = [
                self._sessions.make(request_id, index, request, arrived)
                for index in range(request.params.n)
            ]
            try:
                self._parents[request_id] = ParentRequest(
                    request_id, request, sessions, self.drafter_name
                )
                self._scheduler.add(sessions[0])
            except BaseException:
                self._remove(request_id)
                raise
            return request_id

    def check(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Check what ``add`` would refuse.

        Raises:
            RequestError: the prompt or a parameter cannot be served.
        """
        check_request(self._target, self._max_len, prompt, params)

    def _next_id(self) -> str:
        """An id that no request has, whatever ids callers choose for theirs."""
        self._count += 1
        while f"req-{self._count}" in self._parents:
            self._count += 1
        return f"req-{self._count}"

    def abort(self, request_id: str) -> None:
        """Cancel a request and forget it. Unknown ids are ignored."""
        with self._turn():
            self._remove(request_id)

    def cancel(self, request_id: str) -> None:
        """Have a request aborted before the next round, or whatever is called next.

        It never waits, so it may be called from any thread, and from a finalizer that runs in the
        middle of a round.
        """
        self._cancelled.append(request_id)

    def _remove(self, request_id: str) -> None:
        """Cancel a request. Interrupted, it can be called again: the parent is forgotten last."""
        parent = self._parents.get(request_id)
        if parent is None:
            return
        for session in parent.sessions:
            session.stream.abort()
            self._scheduler.remove(session)
            session.release()
        del self._parents[request_id]

    def has(self, request_id: str) -> bool:
        """Whether the engine knows a request, running or finished."""
        with self._turn():
            return request_id in self._parents

    def is_finished(self, request_id: str) -> bool:
        """Whether every completion of a request has ended.

        Raises:
            KeyError: no such request.
        """
        with self._turn():
            return self._parents[request_id].finished

    def text(self, request_id: str) -> str:
        """The text that a request's first completion has released so far.

        Raises:
            KeyError: no such request.
        """
        with self._turn():
            return self._parents[request_id].sessions[0].stream.text

    def output(self, request_id: str) -> RequestOutput:
        """The request's completions as they stand.

        Raises:
            KeyError: no such request.
        """
        with self._turn():
            return self._parents[request_id].output()

    def take(self, request_id: str) -> RequestOutput:
        """Return a request's completions and forget it; one that still runs is cancelled.

        Raises:
            KeyError: no such request.
        """
        with self._turn():
            parent = self._parents[request_id]
            self._remove(request_id)
            return parent.output()

    # -- rounds ----------------------------------------------------------------------------------

    @isolated()
    def step(self) -> list[Delta]:
        """Run one round and return what it added to each completion.

        A request whose rows cannot be judged ends with an error of its own. If the round itself
        raises, whatever and wherever, every session stands where it stood before the round, and the
        next call decides the same tokens again.
        """
        with self._turn():
            started = self._clock()
            batch = [
                SessionRows.planned(slot.job, slot.feed, slot.draft_length)
                for slot in self._scheduler.plan()
            ]
            if batch:
                drafting = self._round(batch)
                self._settle()
                self._seconds += RoundSeconds(self._clock() - started, *drafting)
            return self._report()

    def _round(self, batch: Sequence[SessionRows]) -> tuple[float, float]:
        """Draft, run, judge and commit, all or nothing; seconds of drafting and of observing."""
        began = self._clock()
        try:
            self._rounds.draft(batch)
            drafted = self._clock()
            output = self._runner.forward(batch)
            verdicts = self._rounds.judge(batch, output)
            judged = self._clock()
            self._rounds.commit(verdicts, output)
        except BaseException:
            for rows in batch:
                rows.roll_back()
            self._recover()  # here, whatever it was: tables alone are set back
            raise
        self._unsettled = verdicts
        if any(verdict.fault is not None for verdict in verdicts):
            self._recover()  # some sessions were set back
        committed = self._clock()
        for rows in batch:
            rows.session.stamp(began, committed)
        self._drafting.price(batch, drafted - began, judged - drafted)
        # Without a drafter the same phases run, with nothing to do.
        return (drafted - began, committed - judged) if self._drafter is not None else (0.0, 0.0)

    def _settle(self) -> None:
        """Fork siblings off finished prompts, release sessions that have ended.

        Each part can be done again: a round is settled only when all of it is.
        """
        settling: dict[SpecSession, ParentRequest] = {}
        for verdict in self._unsettled:
            session = verdict.rows.session
            parent = self._parents.get(session.request_id)
            if parent is None:  # cancelled since
                continue
            settling[session] = parent
            if verdict.fault is not None:
                parent.fail(verdict.fault)
                settling.update(dict.fromkeys(parent.sessions, parent))
        for session, parent in settling.items():
            ready = parent.fork_ready()
            for sibling in ready:
                self._scheduler.remove(sibling)  # an interrupted attempt may have queued it
                self._scheduler.add(sibling)
            if ready:
                parent.mark_forked()
            self._unreported[session] = parent
            if session.finished:
                self._scheduler.settle([session])
                session.release()
        self._unsettled = []

    def _report(self) -> list[Delta]:
        """What sessions have that no earlier call reported; interrupted, it reports it later."""
        found = [
            (parent, session, parent.delta(session)) for session, parent in self._unreported.items()
        ]
        deltas = [delta for _, _, delta in found if delta is not None]
        for parent, session, _ in found:
            parent.mark_reported(session)
        self._unreported = {}
        return deltas

    def _recover(self) -> None:
        """Count pages anew after a fault: page tables are right, whatever was interrupted."""
        sessions = [s for parent in self._parents.values() for s in parent.sessions]
        self._pool.recount([session.cache.pages for session in sessions])
        if self._drafter is not None:
            states = [s.draft_state for s in sessions if s.draft_state is not None]
            self._drafter.recover(states)

    def audit(self) -> None:
        """Check every cache, page count and drafter resource between rounds.

        Raises:
            InvariantError: something does not hold.
        """
        with self._turn():
            live = [
                session
                for parent in self._parents.values()
                for session in parent.sessions
                if not session.finished
            ]
            for session in live:
                session.audit()
            self._pool.audit([session.cache.pages for session in live])
            if self._drafter is not None:
                states = [s.draft_state for s in live if s.draft_state is not None]
                self._drafter.audit(states)


def _draft_length(drafter: Drafter, config: EngineConfig) -> int:
    """Most tokens to draft per round, within what the drafter can."""
    if config.draft_length is None:
        return drafter.max_draft
    return min(config.draft_length, drafter.max_draft)
