"""Random lives of many requests: after every round each cache holds exactly what was committed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.config.engine import EngineConfig
from outrider.engine import Engine, Request
from outrider.session.session import SpecSession
from outrider.types.sampling import SamplingParams
from support.adversaries import adversaries
from support.run import alone, make_engine
from support.tiny import TINY, tiny_target

TARGET = tiny_target()
PROMPT = [3, 4, 5, 6, 3, 4]
TRUTH = [
    [*PROMPT, *alone(TARGET, [(PROMPT, SamplingParams(temperature=0, max_tokens=40))])[0]
     .outputs[0].token_ids]
]  # fmt: skip

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(1, 80)),
        st.tuples(st.just("step"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("abort"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("demote"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 9), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)
KINDS = st.sampled_from(["random", "right", "half", "crashing", "nonsense", "repeating"])


def live_sessions(engine: Engine) -> list[SpecSession]:
    parents = engine._parents.values()
    return [s for parent in parents for s in parent.sessions if not s.finished]


def act(engine: Engine, ids: list[str], action: str, count: int, extra: int) -> None:
    if action == "add":
        params = SamplingParams(temperature=0, n=count, max_tokens=extra % 30 + 1)
        prompt = (PROMPT * 20)[: max(extra, 2)]
        ids.append(engine.add(Request(prompt, params)))
    elif action == "step":
        for _ in range(count):
            engine.step()
            engine.audit()
    elif action == "abort" and ids:
        engine.abort(ids.pop(count % len(ids)))
    elif live_sessions(engine):
        session = live_sessions(engine)[count % len(live_sessions(engine))]
        session.demote() if action == "demote" else session.restart()


@settings(max_examples=40, deadline=None)
@given(STEPS, KINDS, st.integers(1, 9), st.sampled_from([6, 9, 60]))
def test_random_lives(steps: Any, kind: str, length: int, pages: int) -> None:
    page = TARGET.model.allocate(1).page_nbytes
    config = EngineConfig(
        max_model_len=128,
        max_num_seqs=4,
        draft_length=length,
        max_num_batched_tokens=11,
        kv_cache_memory_bytes=pages * page,
    )
    engine = make_engine(TARGET, adversaries(TRUTH, TINY.vocab_size)[kind], config)
    ids: list[str] = []
    for action, count, extra in steps:
        act(engine, ids, action, count, extra)
        engine.audit()
    for _ in range(3000):
        if not engine.has_unfinished:
            break
        engine.step()
        engine.audit()
    assert not engine.has_unfinished
    for request_id in ids:
        output = engine.take(request_id)
        for completion in output.outputs:
            stream = [*output.prompt_token_ids, *completion.token_ids]
            if output.prompt_token_ids == PROMPT:
                assert stream == TRUTH[0][: len(stream)]
    assert engine._pool.num_used == 0


def test_audit_catches_a_row_too_many() -> None:
    engine = make_engine(TARGET, None, EngineConfig(max_num_seqs=2))
    engine.add(Request(PROMPT, SamplingParams(temperature=0, max_tokens=9)))
    engine.step()
    engine.audit()
    live_sessions(engine)[0].stream.committed -= 1
    with pytest.raises(AssertionError, match="rows"):
        engine.audit()


def test_an_engine_is_freed_when_it_is_dropped() -> None:
    """Pages are most of an engine's memory; they must not wait for the garbage collector."""
    gc.disable()
    try:
        engine = make_engine(TARGET, None, EngineConfig(max_num_seqs=2))
        engine.add(Request(PROMPT, SamplingParams(temperature=1, top_k=3, max_tokens=4)))
        while engine.has_unfinished:
            engine.step()
        gone = weakref.ref(engine._pool.store)
        del engine
        assert gone() is None
    finally:
        gc.enable()
