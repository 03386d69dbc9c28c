"""Many callers, one engine: threads, streams that are left, interrupts, closing, forks."""

from __future__ import annotations

import _thread
import asyncio
import gc
import itertools
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from outrider import LLM, OutriderError, RequestError, SamplingParams
from outrider.config.engine import EngineConfig
from outrider.drafters.ngram import NgramDrafter
from outrider.engine import Engine, Request
from outrider.engine.parent_request import ParentRequest
from outrider.llm import serving
from outrider.llm.desk import AHEAD, Message
from outrider.llm.owner import EngineOwner, _start
from support.run import alone, make_engine, views
from support.tiny import tiny_target

TARGET = tiny_target()
GREEDY = SamplingParams(temperature=0, seed=1, max_tokens=24, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, seed=1, ignore_eos=True)
PROMPTS = [[3 + i, 9, 11, 5 + i % 7] for i in range(12)]


def made(engine: Engine) -> LLM:
    """An LLM around an engine, without anything to load."""
    llm = LLM.__new__(LLM)
    llm._target, llm._config, llm._drafter = TARGET, EngineConfig(), "none"
    llm._engine, llm._owner = engine, EngineOwner(engine)
    return llm


@pytest.fixture
def llm() -> Iterator[LLM]:
    made_llm = made(make_engine(TARGET, NgramDrafter(), EngineConfig(max_num_seqs=3)))
    yield made_llm
    made_llm.close()


def params(index: int) -> SamplingParams:
    return SamplingParams(
        temperature=[0.0, 0.8, 1.0][index % 3],
        top_p=[1.0, 1.0, 0.9][index % 3],
        seed=index,
        max_tokens=10 + index,
        ignore_eos=True,
        logprobs=[None, None, 1][index % 3],
    )


def quiet(llm: LLM) -> None:
    """Nothing runs, and every page is free."""
    engine = llm.engine
    assert not engine.has_unfinished
    engine.audit()
    assert engine._pool.num_used == 0
    assert not engine._parents


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    results: list[Any] = [None] * count

    def run(index: int) -> None:
        try:
            results[index] = work(index)
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a caller waits for ever"
    return results


def test_threads_get_their_own_answers(llm: LLM) -> None:
    right = [alone(TARGET, [(PROMPTS[i], params(i))]) for i in range(12)]

    def work(index: int) -> bool:
        for turn in range(4):
            if turn % 2:
                got = llm.generate(PROMPTS[index], params(index))
            else:
                with llm.stream(PROMPTS[index], params(index)) as stream:
                    text = "".join(stream)
                assert stream.output is not None
                assert text == stream.output.outputs[0].text
                got = [stream.output]
            if views(got) != views(right[index]):
                return False
        return True

    assert in_threads(work, 12) == [True] * 12
    quiet(llm)


def test_threads_share_batches(llm: LLM) -> None:
    """Callers in parallel need fewer rounds than one after another."""
    rounds = []
    honest = llm.engine._round
    llm.engine._round = lambda batch: (rounds.append(len(batch)), honest(batch))[1]  # type: ignore[method-assign]
    barrier = threading.Barrier(3)

    def work(index: int) -> Any:
        barrier.wait()
        return llm.generate(PROMPTS[index], GREEDY)

    in_threads(work, 3)
    assert max(rounds) > 1


def test_asyncio_to_thread(llm: LLM) -> None:
    right = [views(alone(TARGET, [(PROMPTS[i], params(i))])) for i in range(6)]

    async def everything() -> list[Any]:
        calls = [asyncio.to_thread(llm.generate, PROMPTS[i], params(i)) for i in range(6)]
        return await asyncio.gather(*calls)

    assert [views(output) for output in asyncio.run(everything())] == right
    quiet(llm)


def test_a_bad_request_of_one_thread_is_its_own(llm: LLM) -> None:
    right = views(alone(TARGET, [(PROMPTS[0], GREEDY)]))

    def work(index: int) -> Any:
        prompts = [PROMPTS[0], [10_000]] if index % 2 else [PROMPTS[0]]
        return [views([output]) for output in llm.generate(prompts, GREEDY)]

    for index, result in enumerate(in_threads(work, 6)):
        if index % 2:
            assert isinstance(result, RequestError)
        else:
            assert result == [right]
    quiet(llm)


LEAVINGS: dict[str, Callable[[Any], None]] = {
    "break": lambda stream: None,
    "close": lambda stream: stream.close(),
    "with": lambda stream: stream.__exit__(None, None, None),
}


@pytest.mark.parametrize("how", list(LEAVINGS))
@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_a_stream_that_is_left_ends_its_request(llm: LLM, how: str, pieces: int) -> None:
    for _ in range(4):
        stream = llm.stream(PROMPTS[0], ENDLESS)
        for _ in range(pieces):
            next(stream)
        LEAVINGS[how](stream)
        del stream
        gc.collect()
        quiet(llm)
    assert views(llm.generate(PROMPTS[1], GREEDY)) == views(alone(TARGET, [(PROMPTS[1], GREEDY)]))


def test_a_stream_in_a_cycle_ends_with_it(llm: LLM) -> None:
    ring: dict[str, Any] = {"stream": llm.stream(PROMPTS[0], ENDLESS)}
    next(ring["stream"])
    ring["self"] = ring
    del ring
    gc.collect()
    quiet(llm)


def test_a_generator_that_is_dropped_ends_its_stream(llm: LLM) -> None:
    def words() -> Iterator[str]:
        yield from llm.stream(PROMPTS[0], ENDLESS)

    for piece in words():
        assert piece
        break
    gc.collect()
    quiet(llm)


def test_a_stream_runs_hardly_ahead_of_its_reader(llm: LLM) -> None:
    stream = llm.stream(PROMPTS[0], ENDLESS)
    next(stream)
    deadline = time.monotonic() + 30
    seen = -1
    while seen != (seen := llm.engine.round_seconds.total) and time.monotonic() < deadline:
        time.sleep(0.05)  # until it rests
    (parent,) = llm.engine._parents.values()
    first = parent.sessions[0].telemetry.rounds
    assert first <= 2 + AHEAD + 1
    stream.close()


def test_a_closed_stream_keeps_what_it_has(llm: LLM) -> None:
    whole = alone(TARGET, [(PROMPTS[0], GREEDY)])[0].outputs[0]
    stream = llm.stream(PROMPTS[0], GREEDY)
    text = next(stream)
    stream.close()
    stream.close()
    assert stream.output is not None
    completion = stream.output.outputs[0]
    assert completion.finish_reason == "abort"
    assert completion.text.startswith(text)
    assert completion.token_ids == whole.token_ids[: len(completion.token_ids)]
    assert list(stream) == []


def test_streams_read_in_turn(llm: LLM) -> None:
    right = [alone(TARGET, [(PROMPTS[i], GREEDY)])[0].outputs[0].text for i in range(3)]
    streams = [llm.stream(PROMPTS[i], GREEDY) for i in range(3)]
    texts = [""] * 3
    live = {0, 1, 2}
    while live:
        for index in sorted(live):
            piece = next(streams[index], None)
            if piece is None:
                live.discard(index)
            else:
                texts[index] += piece
    assert texts == right
    quiet(llm)


def test_rounds_that_others_run_are_read_too(llm: LLM) -> None:
    right = alone(TARGET, [(PROMPTS[0], GREEDY)])[0].outputs[0].text
    stream = llm.stream(PROMPTS[0], GREEDY)
    text = next(stream)
    while llm.engine.has_unfinished:
        llm.engine.step()
    assert text + "".join(stream) == right


class AlarmError(Exception):
    """What a caller's own signal handler raises."""


@contextmanager
def alarms() -> Iterator[Callable[[float], None]]:
    """Yields what raises AlarmError in this thread after some seconds."""

    def ring(number: int, frame: Any) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield lambda pause: signal.setitimer(signal.ITIMER_REAL, pause) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def interrupts() -> Iterator[Callable[[float], None]]:
    """Yields what raises KeyboardInterrupt in this thread after some seconds."""
    timers = []

    def ring(pause: float) -> None:
        timers.append(threading.Timer(pause, _thread.interrupt_main))
        timers[-1].start()

    yield ring
    for timer in timers:
        timer.join()


@contextmanager
def neighbour(llm: LLM) -> Iterator[list[Any]]:
    """Another thread that asks all the time; yields its wrong answers."""
    right = views(alone(TARGET, [(PROMPTS[2], params(4))]))
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            got: Any
            try:
                got = views(llm.generate(PROMPTS[2], params(4)))
            except BaseException as error:
                got = error
            if got != right:
                wrong.append(got)

    thread = threading.Thread(target=work)
    thread.start()
    yield wrong
    stop.set()
    thread.join(120)


def ask_until(llm: LLM, turn: int, ring: Callable[[], None]) -> None:
    ring()
    for _ in range(1000):
        if turn % 2:
            llm.generate(PROMPTS[0], ENDLESS)
        else:
            "".join(llm.stream(PROMPTS[0], ENDLESS))


@pytest.mark.parametrize("raiser", [interrupts, alarms])
def test_an_interrupt_ends_a_wait_and_nothing_else(llm: LLM, raiser: Any) -> None:
    """Whenever it comes: the next call is right, other threads never notice, no page is lost."""
    right = views(alone(TARGET, [(PROMPTS[1], GREEDY)]))
    with neighbour(llm) as wrong, raiser() as ring:
        for turn in range(24):
            with pytest.raises((KeyboardInterrupt, AlarmError)):
                ask_until(llm, turn, partial(ring, 0.0003 * (turn % 15) + 0.0001))
            assert views(llm.generate(PROMPTS[1], GREEDY)) == right
    assert wrong == []
    gc.collect()
    quiet(llm)


def test_a_round_that_raises_is_told_to_every_caller(llm: LLM, monkeypatch: Any) -> None:
    right = views(alone(TARGET, [(PROMPTS[0], GREEDY)]))

    def broken(*args: Any) -> Any:
        raise MemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(llm.engine._runner, "forward", broken)
        for result in in_threads(lambda index: llm.generate(PROMPTS[index], GREEDY), 3):
            assert isinstance(result, MemoryError)
        with pytest.raises(MemoryError), llm.stream(PROMPTS[0], GREEDY) as stream:
            list(stream)
    quiet(llm)
    assert views(llm.generate(PROMPTS[0], GREEDY)) == right


def test_closing_tells_those_who_wait() -> None:
    llm = made(make_engine(TARGET, None, EngineConfig(max_num_seqs=3)))
    started = threading.Barrier(3)

    def work(index: int) -> Any:
        if index == 2:
            started.wait()
            llm.close()
            return None
        with llm.stream(PROMPTS[index], ENDLESS) as stream:
            next(stream)
            started.wait()
            return list(stream)

    results = in_threads(work, 3)
    for result in results[:2]:
        assert isinstance(result, RequestError | list)
    for call in (llm.generate, llm.stream):
        with pytest.raises(RequestError, match="closed"):
            call(PROMPTS[0], GREEDY)
    with pytest.raises(RequestError, match="closed"):
        _ = llm.engine
    assert "closed" in repr(llm)
    llm.close()


def test_a_dropped_llm_is_freed_with_its_thread() -> None:
    llm = made(make_engine(TARGET, None, EngineConfig(max_num_seqs=3)))
    llm.generate(PROMPTS[0], GREEDY)
    thread = llm._owner.desk.thread
    assert thread is not None
    store = weakref.ref(llm.engine._pool.store)
    gc.disable()
    try:
        del llm
        assert store() is None, "its pages wait for the garbage collector"
    finally:
        gc.enable()
    assert not thread.is_alive()


def test_a_stream_outlives_the_llm_it_came_from() -> None:
    right = alone(TARGET, [(PROMPTS[0], GREEDY)])[0].outputs[0].text
    stream = made(make_engine(TARGET, None, EngineConfig(max_num_seqs=3))).stream(
        PROMPTS[0], GREEDY
    )
    gc.collect()
    assert "".join(stream) == right


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_is_told(llm: LLM) -> None:
    llm.generate(PROMPTS[0], GREEDY)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            llm.generate(PROMPTS[0], GREEDY)
            said = b"served"
        except OutriderError as error:
            said = str(error).encode()
        except BaseException as error:
            said = repr(error).encode()
        os.write(write, said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        assert "forked" in told.read()
    os.waitpid(child, 0)


def test_the_engine_itself_may_be_called_by_several_threads() -> None:
    engine = make_engine(TARGET, NgramDrafter(), EngineConfig(max_num_seqs=3))
    right = [views(alone(TARGET, [(PROMPTS[i], params(i))])) for i in range(5)]

    def work(index: int) -> Any:
        request_id = engine.add(Request(PROMPTS[index], params(index)))
        while not engine.is_finished(request_id):
            engine.step()
            engine.audit()
        return views([engine.take(request_id)])

    assert in_threads(work, 5) == right
    assert engine._pool.num_used == 0


def test_closing_gives_the_pages_back() -> None:
    llm = made(make_engine(TARGET, None, EngineConfig(max_num_seqs=3)))
    with llm:
        llm.generate(PROMPTS[0], GREEDY)
        store = weakref.ref(llm.engine._pool.store)
    gc.collect()
    assert store() is None


def pieces_of(stream: Any, index: int) -> list[str]:
    return list(stream)


def test_readers_of_one_stream_share_its_pieces(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], ENDLESS)[0].outputs[0].text
    for _ in range(4):
        stream = llm.stream(PROMPTS[0], ENDLESS)
        parts = in_threads(partial(pieces_of, stream), 3)
        assert sum(len(piece) for part in parts for piece in part) == len(whole)
        assert sorted("".join(piece for part in parts for piece in part)) == sorted(whole)


def test_a_stream_of_a_closed_llm_keeps_what_it_has() -> None:
    llm = made(make_engine(TARGET, None, EngineConfig(max_num_seqs=3)))
    stream = llm.stream(PROMPTS[0], ENDLESS)
    text = next(stream)
    llm.close()
    with stream:
        pass
    assert stream.output is not None
    assert stream.output.outputs[0].finish_reason == "abort"
    assert stream.output.outputs[0].text.startswith(text)


def test_a_thread_that_cannot_start_is_tried_again(llm: LLM, monkeypatch: Any) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(OutriderError, match="thread cannot be started"):
            llm.generate(PROMPTS[0], GREEDY)
    assert views(llm.generate(PROMPTS[0], GREEDY)) == views(alone(TARGET, [(PROMPTS[0], GREEDY)]))


def test_small_stacks_of_the_caller_are_not_the_engines(llm: LLM) -> None:
    before = threading.stack_size(1 << 16)
    try:
        llm.generate(PROMPTS[0], GREEDY)
        assert threading.stack_size() == 1 << 16, "the caller's choice stays"
    finally:
        threading.stack_size(before)


CALLS: list[tuple[Callable[[LLM], Any], str]] = [
    (lambda llm: llm.generate("a", sampling_params=GREEDY), "^sampling_params: .*use params$"),
    (lambda llm: llm.generate("a", use_tqdm=False), "^use_tqdm: .*progress"),
    (lambda llm: llm.generate("a", max_tokens=5), r"SamplingParams\(max_tokens=...\)"),
    (lambda llm: llm.generate("a", max_new_tokens=5), r"SamplingParams\(max_tokens=...\)"),
    (lambda llm: llm.generate("a", prompt_token_ids=[1]), "use|prompts"),
    (lambda llm: llm.chat([{"role": "user", "content": "a"}], tools=[]), "^tools: "),
    (lambda llm: llm.stream([3], sampling_params=GREEDY), "use params$"),
    (lambda llm: llm.generate([3], 5), r"^params: must be SamplingParams\(...\)"),
    (lambda llm: llm.stream([3], 0), "^params: must be"),
    (lambda llm: llm.stream([3], {"max_tokens": 3}), "^params: must be"),
    (lambda llm: llm.stream([3], [GREEDY, GREEDY]), "^params: 2 of them for 1 prompts"),
    (lambda llm: llm.generate([3], [GREEDY, 3]), "^params: must be"),
    (lambda llm: llm.generate([3], GREEDY, True), "^progress: must be a function"),
    (lambda llm: llm.generate([3], GREEDY, None), "^progress: must be a function"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_calls_refuse_what_they_do_not_have(llm: LLM, call: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(llm)
    quiet(llm)


def test_a_request_closed_after_it_was_cancelled_harms_nobody(llm: LLM) -> None:
    """As when an interrupt comes while a close is on its way: the dropped ticket cancels."""
    right = alone(TARGET, [(PROMPTS[1], GREEDY)])[0].outputs[0].text
    other = llm.stream(PROMPTS[1], GREEDY)
    (ticket,) = llm._owner.submit([Request(PROMPTS[0], ENDLESS)])
    entry = ticket.entry
    assert entry.request_id is not None
    llm.engine.cancel(entry.request_id)
    llm._owner.send(Message(lambda: entry.ended, closing=entry))
    with pytest.raises((KeyError, RequestError)):
        entry.result()
    assert "".join(other) == right
    quiet(llm)


def test_however_many_threads_are_started_one_serves(llm: LLM) -> None:
    """An interrupt of a thread's start leaves it alive and unknown; the next call starts one."""
    right = views(alone(TARGET, [(PROMPTS[0], GREEDY)]))
    for _ in range(3):
        _start(llm._owner.desk)
    assert views(llm.generate(PROMPTS[0], GREEDY)) == right
    serving = llm._owner.desk.thread
    _start(llm._owner.desk)
    assert in_threads(lambda _: views(llm.generate(PROMPTS[0], GREEDY)) == right, 4) == [True] * 4
    assert llm._owner.desk.thread is serving
    llm.close()
    assert serving is not None
    assert not serving.is_alive()


def failing(function: Callable[..., Any], turn: int) -> Callable[..., Any]:
    """``function``, which runs out of memory in its ``turn``-th call."""
    calls = itertools.count(1)

    def call(*args: Any, **named: Any) -> Any:
        if next(calls) == turn:
            raise MemoryError("planted")
        return function(*args, **named)

    return call


#: Where something goes wrong once in the owner's thread, and whether it belongs to one request.
PLANTS = [
    (Engine, "add"),
    (Engine, "text"),
    (Engine, "take"),
    (Engine, "has"),
    (Engine, "is_finished"),
    (ParentRequest, "output"),
    (serving, "_take_in"),
    (serving, "_accept"),
    (serving, "_hand_out"),
    (serving, "_publish"),
    (serving, "_answer"),
    (serving, "_step"),
    (serving, "_end"),
    (serving, "_read_inbox"),
]


@pytest.mark.parametrize(("place", "name"), PLANTS, ids=[name for _, name in PLANTS])
@pytest.mark.parametrize("turn", [1, 2, 4])
def test_a_fault_in_the_owners_thread_ends_a_request_and_not_the_thread(
    llm: LLM, monkeypatch: Any, place: Any, name: str, turn: int
) -> None:
    right = views(alone(TARGET, [(PROMPTS[0], GREEDY)]))
    text = alone(TARGET, [(PROMPTS[0], GREEDY)])[0].outputs[0].text
    for call in (
        lambda: views(llm.generate(PROMPTS[0], GREEDY)) == right,
        lambda: "".join(llm.stream(PROMPTS[0], GREEDY)) == text,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, failing(getattr(place, name), turn))
            (result,) = in_threads(lambda _, call=call: call(), 1)
        assert result is True or isinstance(result, MemoryError)
        assert views(llm.generate(PROMPTS[0], GREEDY)) == right
    gc.collect()
    quiet(llm)


def test_a_thread_that_cannot_go_on_says_why(llm: LLM, monkeypatch: Any) -> None:
    def broken(*args: Any) -> Any:
        raise MemoryError("planted")

    monkeypatch.setattr(serving, "_publish", broken)
    for message in ("planted", "planted"):
        with pytest.raises((MemoryError, OutriderError), match=message):
            llm.generate(PROMPTS[0], GREEDY)


def test_a_closed_llm_refuses_whatever_is_asked(llm: LLM) -> None:
    llm.close()
    for call in (
        lambda: llm.generate([]),
        lambda: llm.chat([]),
        llm.variant,
        lambda: llm.stream("hi"),
    ):
        with pytest.raises(RequestError, match="closed"):
            call()


def test_an_id_of_ones_own_takes_nobody_elses(llm: LLM) -> None:
    for index in range(4):
        llm.engine.add(Request(PROMPTS[0], GREEDY, request_id=f"req-{index + 1}"))
    assert len(llm.generate(PROMPTS[:3], GREEDY)) == 3


def test_a_batch_is_refused_by_the_place_of_its_prompt(llm: LLM) -> None:
    for bad, reason in (
        ([], "at least one token"),
        ([10**6], "vocabulary"),
        ([3] * 999, "context"),
    ):
        with pytest.raises(RequestError, match=rf"^prompts\[2\]: .*{reason}"):
            llm.generate([PROMPTS[0], PROMPTS[1], bad], GREEDY)
        with pytest.raises(RequestError, match=rf"^prompt: .*{reason}"):
            llm.generate([bad], GREEDY)
    quiet(llm)


def test_faults_now_and_then_do_not_end_the_thread(llm: LLM, monkeypatch: Any) -> None:
    """Three in a row do; four with answers between them do not."""
    right = views(alone(TARGET, [(PROMPTS[0], GREEDY)]))
    assert views(llm.generate(PROMPTS[0], GREEDY)) == right  # the thread waits for messages now
    for _ in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(serving, "_publish", failing(serving._publish, 1))
            with pytest.raises(MemoryError, match="planted"):
                llm.generate(PROMPTS[0], GREEDY)
        assert views(llm.generate(PROMPTS[0], GREEDY)) == right


def test_progress_is_told_when_it_changes(llm: LLM) -> None:
    told: list[tuple[str, int, int]] = []
    llm.generate(PROMPTS[0], GREEDY, lambda *news: told.append(news))
    assert told == [("Generating", 1, 1)]
