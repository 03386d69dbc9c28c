"""A round happens or does not: whatever interrupts it, the next one decides the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafters import drafter_toys as toys
from outrider.caches.paged import PagedCache
from outrider.config.engine import EngineConfig
from outrider.drafters.base import Drafter
from outrider.drafters.hybrid import HybridDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine import Engine, Request
from outrider.engine.parent_request import ParentRequest
from outrider.models.dense import DenseModel
from outrider.models.target import Target
from outrider.session.drafting import Drafting
from outrider.session.round import Rounds
from outrider.session.stream import TokenStream
from outrider.types.output import RequestOutput
from outrider.types.sampling import SamplingParams
from outrider.verify.samplers import DirectSampler, LogitsSampler
from support.interrupts import Interrupter
from support.run import alone, make_engine, views
from support.tiny import tiny_tokenizer

PROMPTS = [[5, 9, 11, 5, 9, 11, 5, 9], [3, 4], list(range(1, 40))]
PARAMS = [
    SamplingParams(temperature=0, seed=1, max_tokens=14, ignore_eos=True, logprobs=1),
    SamplingParams(temperature=0.8, seed=7, max_tokens=12, n=2),
    SamplingParams(
        temperature=1.0, seed=3, top_p=0.9, max_tokens=12, repetition_penalty=1.1, stop=["zz"]
    ),
]
REQUESTS = list(zip(PROMPTS, PARAMS, strict=True))
DSPARK = {"markov_rank": 8, "enable_confidence_head": True, "confidence_head_with_markov": True}
CONFIG = EngineConfig(max_num_seqs=4, draft_length=3, max_num_batched_tokens=9)
REJECTION = EngineConfig(
    max_num_seqs=4, draft_length=3, max_num_batched_tokens=9, verification="rejection"
)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target("toy", "toy", toys.make_target(), tiny_tokenizer(toys.V), toys.POSITIONS)


@pytest.fixture(scope="module")
def plain(target: Target) -> Any:
    return alone(target, REQUESTS)


MAKERS: dict[str, Callable[[Path, Target], Drafter | None]] = {
    "none": lambda path, t: None,
    "ngram": lambda path, t: NgramDrafter(),
    "mtp": lambda path, t: toys.load(
        path, t.model, toys.mtp_config(), toys.mtp_tensors(toys.mtp_config())
    ),
    "hybrid": lambda path, t: HybridDrafter(
        NgramDrafter(), toys.load(path, t.model, toys.zlab_config("DSparkDraftModel", **DSPARK))
    ),
}


def state_of(engine: Engine) -> Any:
    """Everything of the live sessions that a round may change."""
    sessions = [s for parent in engine._parents.values() for s in parent.sessions]
    return (
        engine._pool.num_free,
        [
            (
                list(s.stream.tokens),
                s.stream.committed,
                s.stream.text,
                s.stream.finish_reason,
                dict(s.stream.history.counts),
                list(s.logprobs),
                s.sampler.mark(),
                s.cache.length,
                s.draft_state.length if s.draft_state is not None else None,
                s.telemetry.rounds,
                s.telemetry.drafted,
            )
            for s in sessions
        ],
    )


def run(engine: Engine, ids: list[str]) -> list[RequestOutput]:
    for _ in range(500):
        if not engine.has_unfinished:
            break
        engine.step()
        engine.audit()
    outputs = [engine.take(request_id) for request_id in ids]
    engine.audit()
    assert engine._pool.num_used == 0
    for output in outputs:
        counted, emitted = output.metrics.speculation, sum(len(c.token_ids) for c in output.outputs)
        assert counted.rounds + counted.accepted == emitted, (
            "a round is counted once, or not at all"
        )
    return outputs


def lines_of_a_round(engine: Engine) -> int:
    with Interrupter("_round", -1, KeyboardInterrupt) as counter:
        engine.step()
    return counter.lines


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("warm", [0, 2, 6])
def test_an_interrupt_anywhere_in_a_round(
    target: Target, plain: Any, tmp_path: Path, kind: str, warm: int
) -> None:
    """Prefill, forks and decoding, one engine for each of many places in the round's code."""
    drafter = MAKERS[kind](tmp_path, target)

    def begun() -> tuple[Engine, list[str]]:
        engine = make_engine(target, drafter, CONFIG)
        ids = [engine.add(Request(prompt, params)) for prompt, params in REQUESTS]
        for _ in range(warm):
            engine.step()
        return engine, ids

    for _ in range(2):  # the first round of a process makes what later ones find made
        engine, ids = begun()
        lines = lines_of_a_round(engine)
        run(engine, ids)
    for place in range(1, lines, max(lines // 8, 1)):
        engine, ids = begun()
        engine._scheduler.plan()  # admits whom the next round would: no part of what is set back
        before = state_of(engine)
        interrupter = Interrupter("_round", place, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt, match="planted"), interrupter:
            engine.step()
        assert interrupter.fired
        engine.audit()
        assert state_of(engine) == before or engine._unreported, "neither before nor after"
        assert views(run(engine, ids)) == views(plain)


class Planted:
    """A method that raises at its ``turn``-th call, before or after its work is done."""

    def __init__(self, honest: Any, turn: int, error: BaseException, after: bool) -> None:
        self.left = turn
        self._honest, self._error, self._after = honest, error, after

    def __get__(self, owner: object, kind: type) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self._after:
                raise self._error
            result = self._honest(owner, *args, **options)
            if self.left == 0:
                raise self._error
            return result

        return call


FAULTS = [KeyboardInterrupt(), MemoryError(), RuntimeError("planted"), KeyError("planted")]
PLACES = [
    (PagedCache, "stage"),
    (PagedCache, "commit"),
    (DenseModel, "forward"),
    (Rounds, "draft"),
    (Rounds, "judge"),
    (Rounds, "commit"),
    (NgramDrafter, "observe"),
    (Drafting, "record"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", FAULTS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_a_fault_of_any_part_sets_the_round_back(
    target: Target, plain: Any, monkeypatch: Any, place: Any, error: BaseException, after: bool
) -> None:
    owner, name = place
    for turn in (1, 2, 9):
        engine = make_engine(target, NgramDrafter(), CONFIG)
        ids = [engine.add(Request(prompt, params)) for prompt, params in REQUESTS]
        with monkeypatch.context() as patch:
            planted = Planted(getattr(owner, name), turn, error, after)
            patch.setattr(owner, name, planted)
            raised = 0
            for _ in range(200):
                before = [list(s.stream.tokens) for s in engine._scheduler.running]
                running = engine._scheduler.running
                try:
                    engine.step()
                except (KeyboardInterrupt, MemoryError, RuntimeError, KeyError):
                    raised += 1
                    assert [list(s.stream.tokens) for s in running] == before
                engine.audit()
                if planted.left <= 0:
                    break
        # A fault of a drafter is not the round's; an interrupt is.
        shielded = owner is NgramDrafter and isinstance(error, Exception)
        assert raised == (0 if shielded else 1)
        assert views(run(engine, ids)) == views(plain)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize(
    "place",
    [(DirectSampler, "sample"), (LogitsSampler, "sample"), (TokenStream, "emit")],
    ids=lambda place: f"{place[0].__name__}.{place[1]}",
)
def test_a_fault_in_judging_is_one_requests_own(
    target: Target, plain: Any, monkeypatch: Any, place: Any, error: BaseException
) -> None:
    """An interrupt sets everybody back; anything else ends the request that it belongs to."""
    owner, name = place
    for turn in (1, 3, 8):
        engine = make_engine(target, NgramDrafter(), CONFIG)
        ids = [engine.add(Request(prompt, params)) for prompt, params in REQUESTS]
        with monkeypatch.context() as patch:
            planted = Planted(getattr(owner, name), turn, error, after=False)
            patch.setattr(owner, name, planted)
            while planted.left > 0:
                try:
                    engine.step()
                except KeyboardInterrupt:
                    assert isinstance(error, KeyboardInterrupt)
                engine.audit()
        outputs = run(engine, ids)
        failed = [output for output in outputs if output.error is not None]
        assert len(failed) == (1 if isinstance(error, MemoryError) else 0)
        for output, expected in zip(outputs, plain, strict=True):
            if output.error is None:
                assert views([output]) == views([expected])
                continue
            assert output.error is error
            for got, whole in zip(output.outputs, expected.outputs, strict=True):
                assert got.finish_reason == "error" or got.token_ids == whole.token_ids
                assert got.token_ids == whole.token_ids[: len(got.token_ids)]
                assert whole.text.startswith(got.text)


def test_rejections_counters_do_not_run_on(target: Target) -> None:
    """What was drawn in a round that failed is drawn again with the same noise."""
    requests = [(PROMPTS[0], SamplingParams(temperature=1.0, seed=3, max_tokens=20))]

    def served(interrupted: bool) -> list[int]:
        engine = make_engine(target, NgramDrafter(), REJECTION)
        (request_id,) = [engine.add(Request(prompt, params)) for prompt, params in requests]
        while engine.has_unfinished:
            if interrupted:
                interrupter = Interrupter("commit", 3, KeyboardInterrupt)
                with pytest.raises(KeyboardInterrupt), interrupter:
                    engine.step()
            engine.step()
        return engine.take(request_id).outputs[0].token_ids

    assert served(True) == served(False)


def test_an_interrupted_settlement_is_finished_later(target: Target, plain: Any) -> None:
    """Tokens are committed, but siblings not forked and pages not returned: the next step does."""
    for place in range(1, 40, 3):
        engine = make_engine(target, NgramDrafter(), CONFIG)
        ids = [engine.add(Request(prompt, params)) for prompt, params in REQUESTS]
        fired = 0
        for _ in range(6):
            with Interrupter("_settle", place, KeyboardInterrupt) as interrupter:
                try:
                    engine.step()
                except KeyboardInterrupt:
                    fired += 1
            assert interrupter.fired or place > 10
        assert fired or place > 30
        assert views(run(engine, ids)) == views(plain)


def test_deltas_of_an_interrupted_settlement_are_not_lost(target: Target) -> None:
    engine = make_engine(target, None, CONFIG)
    request_id = engine.add(Request(PROMPTS[0], PARAMS[0]))
    tokens: list[int] = []
    interrupted = 0
    for turn in range(60):
        try:
            with Interrupter("_settle", 12 if turn % 2 else -1, KeyboardInterrupt):
                deltas = engine.step()
        except KeyboardInterrupt:
            interrupted += 1
            continue
        for delta in deltas:
            tokens += delta.token_ids
    assert interrupted > 5
    assert tokens == engine.take(request_id).outputs[0].token_ids


@pytest.mark.parametrize("kind", ["none", "ngram", "mtp"])
def test_pages_survive_an_interrupt_anywhere_in_a_step(
    target: Target, plain: Any, tmp_path: Path, kind: str
) -> None:
    """Planning and settling included: a page that is half returned is counted anew."""
    drafter = MAKERS[kind](tmp_path, target)
    for name in ("take", "release", "stage", "commit", "share", "_trim"):
        engine = make_engine(target, drafter, CONFIG)
        ids = [engine.add(Request(prompt, params)) for prompt, params in REQUESTS]
        fired = 0
        for turn in range(40):
            with Interrupter(name, 1 + turn % 7, KeyboardInterrupt) as interrupter:
                try:
                    engine.step()
                except KeyboardInterrupt:
                    fired += 1
            assert interrupter.fired or not fired or turn
            engine.audit()
            engine.step()
            engine.audit()
        assert fired
        assert views(run(engine, ids)) == views(plain)


def test_no_delta_is_lost(target: Target, monkeypatch: Any) -> None:
    """A fault while deltas are gathered: the next call has them."""
    for turn in (1, 2, 5):
        engine = make_engine(target, None, CONFIG)
        request_id = engine.add(Request(PROMPTS[0], PARAMS[0]))
        tokens: list[int] = []
        text = ""
        with monkeypatch.context() as patch:
            planted = Planted(ParentRequest.delta, turn, MemoryError(), after=True)
            patch.setattr(ParentRequest, "delta", planted)
            for _ in range(60):
                try:
                    deltas = engine.step()
                except MemoryError:
                    continue
                for delta in deltas:
                    tokens += delta.token_ids
                    text += delta.text
            assert planted.left <= 0
        completion = engine.take(request_id).outputs[0]
        assert (tokens, text) == (completion.token_ids, completion.text)
