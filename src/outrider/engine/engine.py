"""The engine: admits requests and runs rounds."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.config.engine import EngineConfig
from outrider.config.kv import KvDtype
from outrider.drafters.base import Drafter, DraftSampling
from outrider.engine.budget import OPTION, CacheBudget, cache_budget
from outrider.engine.parent_request import ParentRequest
from outrider.engine.request import Request, seed_of
from outrider.kernels.handles import PageStore
from outrider.kernels.isolation import isolated
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN
from outrider.models.target import Target
from outrider.runner.runner import Runner
from outrider.scheduler.scheduler import Limits, Scheduler
from outrider.session.drafting import PROFILE_ROWS, Drafting
from outrider.session.round import Rounds
from outrider.session.session import SpecSession
from outrider.session.share import Share, Verdict, Work
from outrider.session.stream import StreamLimits, TokenStream
from outrider.session.worth import EXPECTED_ACCEPTANCE, CostCurve, Pace, Worth
from outrider.types.errors import OutriderError, RequestError
from outrider.types.output import Delta, RequestOutput
from outrider.types.sizes import show_bytes
from outrider.types.telemetry import RoundSeconds
from outrider.verify.samplers import Gumbel, make_sampler


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
        budget: CacheBudget | None = None,
        worth: Worth | None = None,
    ) -> None:
        """Allocate pages and bind the parts of a round.

        Args:
            target: the model.
            drafter: None decodes plainly.
            config: limits and choices.
            budget: what the caches get; None divides what ``config`` allows.
            worth: prices that are known beforehand; None measures them here.

        Raises:
            RequestError: the KV budget cannot hold one session of full length.
        """
        if budget is None:
            draft_page = 0 if drafter is None else drafter.page_nbytes
            budget = cache_budget(target, config, draft_page)
        self._max_len = budget.max_model_len
        self._target = target = target.reaching(self._max_len)
        self._drafter = drafter
        self._config = config
        self._pool = PagePool(_allocate(target, budget, config))
        draft_length = 0 if drafter is None else _draft_length(drafter, config)
        limits = Limits(config.max_num_seqs, config.max_num_batched_tokens, draft_length)
        pool = self._pool
        self._scheduler: Scheduler[SpecSession] = Scheduler(limits, lambda: pool.num_free)
        taps = () if drafter is None else drafter.taps
        self._runner = Runner(target.model, self._pool.store, taps)
        self._drafting = Drafting(drafter, target.config.vocab_size, config.confidence_threshold)
        if drafter is not None and config.draft_length is None:
            self._drafting.worth = worth or self._prices()
        self._rounds = Rounds(self._drafting)
        self._gumbel = _gumbel_of(target)
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
        self._check(prompt, request)
        with self._turn():
            self._count += 1
            request_id = request.request_id or f"req-{self._count}"
            if request_id in self._parents:
                raise RequestError("request_id", f"{request_id!r} is in use")
            arrived = time.monotonic()
            sessions = [
                self._session(request_id, index, prompt, request, arrived)
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

    def _check(self, prompt: list[int], request: Request) -> None:
        vocab_size = self._target.config.vocab_size
        if not prompt:
            raise RequestError("prompt", "must hold at least one token")
        outside = [token for token in prompt if not 0 <= token < vocab_size]
        if outside:
            raise RequestError(
                "prompt",
                f"token {self._shown(outside[0])} is outside the vocabulary of {vocab_size}",
            )
        if len(prompt) >= self._max_len:
            raise RequestError(
                "prompt",
                f"this model's maximum context length is {self._max_len} tokens, and the prompt "
                f"has {len(prompt)}; shorten it to at most {self._max_len - 1}",
            )
        request.params.check_vocabulary(vocab_size)
        ends = self._target.eos_ids | set(request.params.stop_ids)
        if request.params.min_tokens and len(ends) >= vocab_size:
            raise RequestError("min_tokens", "leaves no token to emit: every token ends the output")

    def _shown(self, token: int) -> str:
        """A token's id, and its text if the tokenizer has one: it may know more than the model."""
        tokenizer = self._target.tokenizer
        text = tokenizer.token(token) if 0 <= token < tokenizer.vocab_size else None
        return str(token) if text is None else f"{token} ({text!r})"

    def _session(
        self, request_id: str, index: int, prompt: list[int], request: Request, arrived: float
    ) -> SpecSession:
        params = request.params
        seed = seed_of(params, index)
        limits = StreamLimits(self._target.eos_ids, self._max_len)
        stream = TokenStream(prompt, params, self._target.tokenizer, limits)
        sampler = make_sampler(
            params, seed, stream.end_ids, self._gumbel, self._config.verification
        )
        cache = PagedCache(self._pool)
        session = SpecSession(request_id, index, params, seed, stream, cache, sampler, arrived)
        drafter = self._drafter
        if drafter is not None:
            coupled = self._config.verification == "coupled"
            stream_id = STREAM_TOKEN if coupled else STREAM_DRAFT
            sampling = DraftSampling(params.temperature, seed, stream_id)
            session.start_drafting(drafter.begin, sampling)
            session.draft_end = drafter.max_position
            if self._drafting.worth is not None:
                belief = self._drafting.worth.belief(params.temperature)
                session.pace = Pace(belief, drafter.max_draft)
        return session

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
            started = time.monotonic()
            plan = [Work(slot.job, slot.feed, slot.draft_length) for slot in self._scheduler.plan()]
            if plan:
                drafting = self._round([Share.of(work) for work in plan])
                self._settle()
                self._seconds += RoundSeconds(time.monotonic() - started, *drafting)
            return self._report()

    def _round(self, shares: Sequence[Share]) -> tuple[float, float]:
        """Draft, run, judge and commit, all or nothing; seconds of drafting and of observing."""
        began = time.monotonic()
        try:
            self._rounds.draft(shares)
            drafted = time.monotonic()
            output = self._runner.forward(shares)
            verdicts = self._rounds.judge(shares, output)
            judged = time.monotonic()
            self._rounds.commit(verdicts, output)
        except BaseException:
            for share in shares:
                share.roll_back()
            self._recover()  # here, whatever it was: tables alone are set back
            raise
        self._unsettled = verdicts
        if any(verdict.fault is not None for verdict in verdicts):
            self._recover()  # some sessions were set back
        committed = time.monotonic()
        for share in shares:
            share.work.session.stamp(began, committed)
        self._price(shares, drafted - began, judged - drafted)
        # Without a drafter the same phases run, with nothing to do.
        return (drafted - began, committed - judged) if self._drafter is not None else (0.0, 0.0)

    def _prices(self) -> Worth:
        """Prices of this target's passes and of this drafter's drafts, measured."""
        curve = CostCurve(self._runner.profile(self._pool, self._max_len))
        rows = min(PROFILE_ROWS, self._max_len)
        taps = self._runner.scratch_taps(self._pool, rows)
        seconds = self._drafting.profile(taps, self._max_len)
        return Worth(curve, seconds, EXPECTED_ACCEPTANCE)

    def _price(self, shares: Sequence[Share], draft_seconds: float, seconds: float) -> None:
        """Note what a round of decoding cost; rounds that feed prompts have another shape."""
        worth = self._drafting.worth
        if worth is None or any(len(share.fed) > 1 for share in shares):
            return
        rows = sum(len(share.tokens) for share in shares)
        drafting = any(share.draft.tokens for share in shares)
        worth.observe(rows, len(shares), draft_seconds if drafting else None, seconds)

    def _settle(self) -> None:
        """Fork siblings off finished prompts, release sessions that have ended.

        Each part can be done again: a round is settled only when all of it is.
        """
        settling: dict[SpecSession, ParentRequest] = {}
        for verdict in self._unsettled:
            session = verdict.share.work.session
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


def _allocate(target: Target, budget: CacheBudget, config: EngineConfig) -> PageStore:
    """Pages of the target's cache.

    Raises:
        RequestError: the system refuses the memory.
    """
    try:
        return target.model.allocate(budget.pages, config.kv_cache_dtype)
    except (MemoryError, RuntimeError):
        raise RequestError(
            "kv_cache_memory_bytes",
            f"this process cannot have {show_bytes(budget.nbytes)} of memory; lower {OPTION}",
        ) from None


def _gumbel_of(target: Target) -> Gumbel:
    """The kernels' noise over numpy arrays. It does not hold the engine, whose pages are large."""
    kernels = target.model.kernels

    def gumbel(
        seed: int, stream: int, position: int, ids: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        drawn = kernels.gumbel(seed, stream, position, torch.from_numpy(ids))
        noise: NDArray[np.float32] = drawn.numpy()
        return noise

    return gumbel
