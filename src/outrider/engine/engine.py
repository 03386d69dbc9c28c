"""The engine: admits requests and runs rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.build.target import Target
from outrider.caches.paged import PagedCache, pages_for
from outrider.caches.pool import PagePool
from outrider.config.engine import EngineConfig
from outrider.drafters.base import Drafter, DraftSampling
from outrider.engine.family import Family
from outrider.engine.request import Request, seed_of
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN
from outrider.runner.runner import Runner
from outrider.scheduler.scheduler import Limits, Scheduler
from outrider.session.drafting import PROFILE_ROWS, Drafting
from outrider.session.round import Rounds
from outrider.session.session import SpecSession
from outrider.session.share import Share, Work
from outrider.session.stream import StreamLimits, TokenStream
from outrider.session.worth import CostCurve, Pace, Worth
from outrider.types.errors import RequestError
from outrider.types.output import Delta, RequestOutput
from outrider.types.telemetry import RoundSeconds
from outrider.verify.choosers import Gumbel, make_chooser


class Engine:
    """Serves many requests over one target. Not safe for concurrent calls.

    ``add`` queues a request, ``step`` runs one round for everyone, ``output`` reads a request's
    state at any time; a finished request is kept until ``take`` or ``abort`` removes it.
    """

    def __init__(self, target: Target, drafter: Drafter | None, config: EngineConfig) -> None:
        """Allocate pages and bind the parts of a round.

        Raises:
            RequestError: the KV budget cannot hold one session of full length.
        """
        self._target = target
        self._drafter = drafter
        self._config = config
        self._max_len = min(config.max_model_len or target.max_model_len, target.max_model_len)
        self._pool = PagePool(target.model.allocate(page_budget(target, config)))
        draft_length = 0 if drafter is None else _draft_length(drafter, config)
        limits = Limits(config.max_num_seqs, config.max_num_batched_tokens, draft_length)
        pool = self._pool
        self._scheduler: Scheduler[SpecSession] = Scheduler(limits, lambda: pool.num_free)
        taps = () if drafter is None else drafter.taps
        self._runner = Runner(target.model, self._pool.store, taps)
        self._drafting = Drafting(drafter, target.config.vocab_size, config.confidence_threshold)
        if drafter is not None and config.draft_length is None:
            self._drafting.worth = self._prices()
        self._rounds = Rounds(self._drafting)
        self._gumbel = _gumbel_of(target)
        self._families: dict[str, Family] = {}
        self._count = 0
        self._seconds = RoundSeconds()

    @property
    def drafter_name(self) -> str:
        """The drafter's name, "none" without one."""
        return "none" if self._drafter is None else self._drafter.name

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
        return any(not family.finished for family in self._families.values())

    @property
    def preemptions(self) -> int:
        """Sessions displaced so far for want of pages."""
        return self._scheduler.preemptions

    # -- requests --------------------------------------------------------------------------------

    def add(self, request: Request) -> str:
        """Queue a request and return its id.

        Raises:
            RequestError: the prompt or a parameter cannot be served.
        """
        prompt = [int(token) for token in request.prompt_token_ids]
        self._check(prompt, request)
        self._count += 1
        request_id = request.request_id or f"req-{self._count}"
        if request_id in self._families:
            raise RequestError("request_id", f"{request_id!r} is in use")
        arrived = time.monotonic()
        sessions = [
            self._session(request_id, index, prompt, request, arrived)
            for index in range(request.params.n)
        ]
        self._families[request_id] = Family(request_id, request, sessions, self.drafter_name)
        self._scheduler.add(sessions[0])
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
        chooser = make_chooser(
            params, seed, stream.end_ids, self._gumbel, self._config.verification
        )
        cache = PagedCache(self._pool)
        session = SpecSession(request_id, index, params, seed, stream, cache, chooser, arrived)
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
        family = self._families.pop(request_id, None)
        if family is None:
            return
        for session in family.sessions:
            session.stream.abort()
            self._scheduler.remove(session)
            session.release()

    def is_finished(self, request_id: str) -> bool:
        """Whether every completion of a request has ended.

        Raises:
            KeyError: no such request.
        """
        return self._families[request_id].finished

    def text(self, request_id: str) -> str:
        """The text that a request's first completion has released so far.

        Raises:
            KeyError: no such request.
        """
        return self._families[request_id].sessions[0].stream.text

    def output(self, request_id: str) -> RequestOutput:
        """The request's completions as they stand.

        Raises:
            KeyError: no such request.
        """
        return self._families[request_id].output()

    def take(self, request_id: str) -> RequestOutput:
        """Return a request's completions and forget it; one that still runs is cancelled.

        Raises:
            KeyError: no such request.
        """
        family = self._families[request_id]
        self.abort(request_id)
        return family.output()

    # -- rounds ----------------------------------------------------------------------------------

    def step(self) -> list[Delta]:
        """Run one round and return what it added to each completion."""
        started = time.monotonic()
        plan = [Work(slot.job, slot.feed, slot.draft_length) for slot in self._scheduler.plan()]
        if not plan:
            return []
        began = time.monotonic()
        shares = self._rounds.draft(plan)
        drafted = time.monotonic()
        output = self._runner.forward(shares)
        verdicts = self._rounds.judge(shares, output)
        judged = time.monotonic()
        self._rounds.commit(verdicts, output)
        committed = time.monotonic()
        self._price(shares, drafted - began, judged - drafted)
        deltas = self._settle([work.session for work in plan], began)
        # Without a drafter the same phases run, with nothing to do.
        ours = (drafted - began, committed - judged) if self._drafter is not None else (0.0, 0.0)
        self._seconds += RoundSeconds(time.monotonic() - started, *ours)
        return deltas

    def _prices(self) -> Worth:
        """Prices of this target's passes and of this drafter's drafts, measured."""
        curve = CostCurve(self._runner.profile(self._pool))
        taps = self._runner.scratch_taps(self._pool, PROFILE_ROWS)
        drafter = self._drafter
        expected = drafter.expected_acceptance if drafter is not None else (0.0,)
        return Worth(curve, self._drafting.profile(taps), expected)

    def _price(self, shares: Sequence[Share], draft_seconds: float, seconds: float) -> None:
        """Note what a round of decoding cost; rounds that feed prompts have another shape."""
        worth = self._drafting.worth
        if worth is None or any(len(share.fed) > 1 for share in shares):
            return
        rows = sum(len(share.tokens) for share in shares)
        drafting = any(share.draft.tokens for share in shares)
        worth.observe(rows, len(shares), draft_seconds if drafting else None, seconds)

    def _settle(self, sessions: Sequence[SpecSession], started: float) -> list[Delta]:
        """Stamp clocks, fork siblings off finished prompts, release ended sessions."""
        deltas = []
        for session in sessions:
            session.stamp(started, time.monotonic())
            family = self._families[session.request_id]
            for sibling in family.fork_ready():
                self._scheduler.add(sibling)
            delta = family.delta(session)
            if delta is not None:
                deltas.append(delta)
        ended = [session for session in sessions if session.finished]
        self._scheduler.settle(ended)
        for session in ended:
            session.release()
        return deltas

    def audit(self) -> None:
        """Check every cache, page count and drafter resource between rounds.

        Raises:
            AssertionError: an invariant is broken.
        """
        live = [
            session
            for family in self._families.values()
            for session in family.sessions
            if not session.finished
        ]
        for session in live:
            session.audit()
        self._pool.audit([session.cache.pages for session in live])
        if self._drafter is not None:
            states = [session.draft_state for session in live if session.draft_state is not None]
            self._drafter.audit(states)


def _draft_length(drafter: Drafter, config: EngineConfig) -> int:
    """Most tokens to draft per round, within what the drafter can."""
    if config.draft_length is None:
        return drafter.max_draft
    return min(config.draft_length, drafter.max_draft)


def page_budget(target: Target, config: EngineConfig) -> int:
    """Pages of the target's cache: what all seats could fill, within the byte budget.

    One spare page per seat covers a page copied before it is written.

    Raises:
        RequestError: the budget cannot hold one session of full length.
    """
    length = min(config.max_model_len or target.max_model_len, target.max_model_len)
    page = target.model.allocate(1).page_nbytes
    least = pages_for(length) + 1
    pages = min(config.max_num_seqs * least, config.kv_bytes // page)
    if pages < least:
        raise RequestError(
            "max_model_len",
            f"{length} tokens take {-(-least * page >> 20)} MiB of KV cache and the budget is "
            f"{config.kv_bytes >> 20} MiB; lower it or raise kv_bytes",
        )
    return pages


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
