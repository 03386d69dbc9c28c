"""Times and counters of requests, in simulated time."""

from __future__ import annotations

import pytest

from outrider.config.engine import EngineConfig
from outrider.engine import Engine, Request
from outrider.types.output import RequestOutput
from outrider.types.sampling import SamplingParams
from support.adversaries import oracle
from support.run import alone, make_engine, truth
from support.timing import FakeClock, TimedDrafter, TimedKernels
from support.tiny import tiny_target

PROMPT = [5, 9, 11, 5, 9, 11, 5, 2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9]


def cost(rows: int) -> float:
    """Binary fractions, so that sums are exact."""
    return 1.0 + rows / 64


def greedy(tokens: int, n: int = 1) -> SamplingParams:
    return SamplingParams(temperature=0, seed=1, max_tokens=tokens, ignore_eos=True, n=n)


def engine_of(
    clock: FakeClock, config: EngineConfig, drafter: TimedDrafter | None = None
) -> Engine:
    target = tiny_target(kernels=TimedKernels(clock, cost))
    return make_engine(target, drafter, config, clock=clock)


def finish(engine: Engine, *ids: str) -> list[RequestOutput]:
    while engine.has_unfinished:
        engine.step()
    return [engine.take(name) for name in ids]


def test_the_wait_in_the_queue_is_no_part_of_prefill() -> None:
    """The clock passes 0 on its way, which is a time like any other."""
    clock = FakeClock(-5.0)
    engine = engine_of(clock, EngineConfig(max_num_seqs=1))
    first = engine.add(Request(PROMPT, greedy(4)))
    clock.advance(5.0)
    second = engine.add(Request(PROMPT[:3], greedy(6)))
    one, two = (output.metrics.timings for output in finish(engine, first, second))
    assert (one.queued_s, one.prefill_s, one.decode_s) == (5.0, cost(20), 3 * cost(1))
    assert (two.queued_s, two.prefill_s) == (cost(20) + 3 * cost(1), cost(3))
    assert two.decode_s == 5 * cost(1)
    assert two.tokens_per_s(6) == 1 / cost(1)


def test_prefill_lasts_from_the_first_chunk_to_the_first_token() -> None:
    clock = FakeClock()
    engine = engine_of(clock, EngineConfig(max_num_seqs=2, max_num_batched_tokens=8))
    (output,) = finish(engine, engine.add(Request(PROMPT, greedy(2))))
    timings = output.metrics.timings
    assert timings.queued_s == 0.0
    assert timings.prefill_s == cost(8) + cost(8) + cost(4)
    assert timings.decode_s == cost(1)


def test_a_prompt_of_one_token() -> None:
    clock = FakeClock(3.0)
    engine = engine_of(clock, EngineConfig(max_num_seqs=2))
    (output,) = finish(engine, engine.add(Request([3], greedy(5))))
    timings, speculation = output.metrics.timings, output.metrics.speculation
    assert (timings.queued_s, timings.prefill_s, timings.decode_s) == (0.0, cost(1), 4 * cost(1))
    assert (speculation.rounds, speculation.prompts, speculation.drafted) == (5, 1, 0)
    assert speculation.acceptance_length == 1.0


@pytest.mark.parametrize("prompt", [[3], PROMPT])
def test_forks_and_short_prompts_draft_from_their_first_round(prompt: list[int]) -> None:
    """A round that drafted is no prompt's, so that no more tokens a round come out than went in."""
    lines = truth(alone(tiny_target(), [(prompt, greedy(40))]))
    clock = FakeClock()
    drafter = TimedDrafter(clock, oracle(lines), 0.125)
    engine = engine_of(clock, EngineConfig(max_num_seqs=4, draft_length=9), drafter)
    (output,) = finish(engine, engine.add(Request(prompt, greedy(10, n=3))))
    speculation = output.metrics.speculation
    tokens = sum(len(completion.token_ids) for completion in output.outputs)
    assert tokens == speculation.rounds + speculation.accepted == 30
    assert speculation.rounds - speculation.prompts >= sum(speculation.drafted_per_position[:1])
    assert speculation.drafted_rounds_share <= 1.0
    assert 1.0 < speculation.acceptance_length <= 10.0
    assert speculation.prompts == (0 if len(prompt) == 1 else 1)


def test_first_tokens_of_forks_follow_the_prompt() -> None:
    clock = FakeClock()
    engine = engine_of(clock, EngineConfig(max_num_seqs=4))
    (output,) = finish(engine, engine.add(Request(PROMPT, greedy(3, n=3))))
    timings = output.metrics.timings
    assert timings.queued_s == 0.0
    assert timings.prefill_s == cost(20)
    assert timings.decode_s == cost(3) + cost(3) + cost(2), "siblings end a round later"


def test_the_time_of_rounds_is_told_apart() -> None:
    lines = truth(alone(tiny_target(), [(PROMPT, greedy(40))]))
    clock = FakeClock(7.0)
    drafter = TimedDrafter(clock, oracle(lines), 0.125, observing=0.25)
    engine = engine_of(clock, EngineConfig(max_num_seqs=1, draft_length=4), drafter)
    finish(engine, engine.add(Request(PROMPT, greedy(11))))
    seconds = engine.round_seconds
    assert seconds.asking == 2 * 0.125
    assert seconds.observing == 3 * 0.25
    assert seconds.total == clock.now - 7.0
    assert seconds.total == seconds.asking + seconds.observing + cost(20) + 2 * cost(5)
