"""What the draft-length policy is told and what comes of it, in simulated time.

A real engine over a scripted target: its passes and drafts take what the test says, so that every
number that reaches the prices and the statistics is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from outrider.config.engine import EngineConfig
from outrider.drafters.base import Proposal
from outrider.engine import Engine, Request
from outrider.types.output import RequestOutput
from outrider.types.sampling import SamplingParams
from support.adversaries import Guesser, adversaries, oracle
from support.run import alone, make_engine, truth
from support.timing import FakeClock, NotedGoodput, TimedDrafter, TimedKernels
from support.tiny import TINY, tiny_target

PROMPTS = [[5, 9, 11, 5, 9, 11, 5], [3, 1, 4, 1, 5], [2, 7, 1, 8]]
PARAMS = SamplingParams(temperature=0, seed=1, max_tokens=120, ignore_eos=True)
#: Seconds of a pass: nearly flat, so that drafting pays where anything is accepted.
KNOTS = [(1, 1.0), (16, 1.75)]
PRICE = 0.125


def cost(rows: int) -> float:
    return 0.95 + 0.05 * rows


@dataclass
class Simulation:
    """An engine in simulated time, and everything that was told to its prices."""

    clock: FakeClock
    kernels: TimedKernels
    drafter: TimedDrafter
    goodput: NotedGoodput
    engine: Engine

    def run(self, *requests: tuple[list[int], SamplingParams]) -> list[RequestOutput]:
        ids = [self.engine.add(Request(prompt, params)) for prompt, params in requests]
        while self.engine.has_unfinished:
            self.engine.step()
        return [self.engine.take(name) for name in ids]


def simulation(
    guess: Guesser,
    price: float = PRICE,
    costs: Callable[[int], float] = cost,
    seats: int = 3,
    told_price: float | None = None,
    observing: float = 0.0,
) -> Simulation:
    clock = FakeClock(100.0)
    kernels = TimedKernels(clock, costs)
    drafter = TimedDrafter(clock, guess, price, observing)
    goodput = NotedGoodput(KNOTS, price if told_price is None else told_price)
    engine = make_engine(
        tiny_target(kernels=kernels),
        drafter,
        EngineConfig(max_num_seqs=seats),
        goodput=goodput,
        clock=clock,
    )
    return Simulation(clock, kernels, drafter, goodput, engine)


@pytest.fixture(scope="module")
def lines() -> list[list[int]]:
    requests = [(prompt, PARAMS) for prompt in PROMPTS]
    return truth(alone(tiny_target(), requests))


def kinds(lines: list[list[int]]) -> Any:
    return adversaries(lines, TINY.vocab_size)


def test_prices_are_told_what_rounds_of_decoding_took(lines: list[list[int]]) -> None:
    """Their rows with the drafts, their sessions, the drafts' time, and the pass's alone."""
    run = simulation(kinds(lines)["half"].guess)
    lengths = zip(PROMPTS, (120, 90, 60), strict=True)
    outputs = run.run(*[(prompt, replace(PARAMS, max_tokens=most)) for prompt, most in lengths])
    noted = run.goodput.noted
    assert len(noted) > 20
    prompt_passes = len(run.kernels.passes) - len(noted)
    assert [rows for rows, *_ in noted] == run.kernels.passes[prompt_passes:]
    assert prompt_passes == 1, "a pass that feeds prompts has another shape and is no price"
    drafted = sum(output.metrics.speculation.drafted for output in outputs)
    assert sum(rows - sessions for rows, sessions, *_ in noted) == drafted > 100
    assert {sessions for _, sessions, *_ in noted} >= {1, 3}
    for rows, sessions, drafting, seconds in noted:
        assert seconds == pytest.approx(cost(rows)), "the pass alone"
        if rows == sessions:
            assert drafting is None
        else:
            assert drafting is not None
            drafts = drafting / PRICE
            assert drafts == pytest.approx(round(drafts))
            assert 1 <= round(drafts) <= sessions


def test_a_draft_that_was_not_made_is_no_price(lines: list[list[int]]) -> None:
    """The drafter is asked, takes its time and has nothing."""
    run = simulation(kinds(lines)["silent"].guess)
    run.run((PROMPTS[0], PARAMS))
    assert run.drafter.drafts > 2
    assert {drafting for *_, drafting, _ in run.goodput.noted} == {None}
    assert run.goodput.draft_seconds == PRICE


@pytest.mark.parametrize("real", [0.4, 0.05])
def test_the_price_of_a_draft_follows_what_drafts_take(lines: list[list[int]], real: float) -> None:
    run = simulation(oracle(lines), real, told_price=0.15)
    for _ in range(4):
        run.run((PROMPTS[0], PARAMS))
    low, high = sorted((0.15, real))
    assert low < run.goodput.draft_seconds < high
    assert abs(run.goodput.draft_seconds - real) < abs(0.15 - real) / 2


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_the_price_of_a_pass_follows_what_passes_take(
    lines: list[list[int]], factor: float
) -> None:
    run = simulation(oracle(lines), costs=lambda rows: factor * cost(rows))
    for _ in range(4):
        run.run(*[(prompt, PARAMS) for prompt in PROMPTS])
    rows = max(rows for rows, *_ in run.goodput.noted)
    assert run.goodput.curve.seconds(rows) == pytest.approx(factor * cost(rows), rel=0.3)


def speed(run: Simulation, lines: list[list[int]], requests: int) -> float:
    """Speed over plain decoding, prompts left out."""
    outputs = [run.run((PROMPTS[turn % 3], PARAMS))[0] for turn in range(requests)]
    tokens = sum(len(output.outputs[0].token_ids) - 1 for output in outputs)
    return tokens * cost(1) / sum(output.metrics.timings.decode_s for output in outputs)


def test_drafts_grow_where_they_hold_and_end_where_they_do_not(lines: list[list[int]]) -> None:
    right, wrong = simulation(oracle(lines)), simulation(kinds(lines)["wrong"].guess)
    assert speed(right, lines, 6) > 4.0
    assert speed(wrong, lines, 6) > 0.95
    longest = max(rows for rows, *_ in right.goodput.noted)
    assert longest == 16, "the whole of what the drafter can"
    assert wrong.drafter.drafts < 40, "a few at first, then a probe now and then"
    statistics = right.goodput.statistics(0.0), wrong.goodput.statistics(0.0)
    good, bad = (shared.acceptance.conditionals(1)[0] for shared in statistics)
    assert good > 0.9
    assert bad < 0.2


def test_a_draft_of_which_nothing_is_kept_is_a_miss(lines: list[list[int]]) -> None:
    """The drafter says that it is not sure, so nothing is judged: asking it again is no use."""

    def unsure(known: list[int], length: int) -> Proposal:
        return Proposal([1] * length, None, [0.001] * length)

    run = simulation(unsure)
    for _ in range(3):
        (output,) = run.run((PROMPTS[0], PARAMS))
        assert output.metrics.speculation.drafted < 20, "a probe's tokens at most"
    assert run.drafter.drafts < 40
    assert run.goodput.statistics(0.0).acceptance.conditionals(1)[0] < 0.3


@pytest.mark.parametrize("distance", [1, 2, 4])
def test_the_end_of_a_stream_refuses_nothing(distance: int) -> None:
    """A stop token ends the stream amid drafts that are right: what follows it was not judged."""
    free = SamplingParams(temperature=1.0, seed=4, max_tokens=40, ignore_eos=True)
    line = truth(alone(tiny_target(), [(PROMPTS[0], free)]))[0]
    output = line[len(PROMPTS[0]) :]
    stop = next(
        token for place, token in enumerate(output) if output.index(token) == place >= distance
    )
    place = output.index(stop)

    def sure(known: list[int], length: int) -> Proposal:
        tokens = oracle([line])(known, length)
        return Proposal(tokens, None, [0.9] * len(tokens))

    run = simulation(sure)
    shared = run.goodput.statistics(1.0)
    before = shared.acceptance.conditionals(8)
    asked = shared.requested.tokens
    for _ in range(40):
        (answer,) = run.run((PROMPTS[0], replace(free, stop_token_ids=[stop])))
        assert answer.outputs[0].token_ids == output[: place + 1]
    assert run.drafter.drafts >= 40
    after = shared.acceptance.conditionals(8)
    assert all(now >= then for now, then in zip(after, before, strict=True))
    assert shared.calibration(copied=False).chances([0.9])[0] >= 0.9
    assert shared.requested.tokens == asked


def test_a_pass_that_feeds_a_prompt_beside_decoding_is_no_price(lines: list[list[int]]) -> None:
    run = simulation(kinds(lines)["silent"].guess)
    short = replace(PARAMS, max_tokens=9)
    run.engine.add(Request(PROMPTS[0], short))
    for _ in range(3):
        run.engine.step()
    run.engine.add(Request(PROMPTS[1], short))
    while run.engine.has_unfinished:
        run.engine.step()
    assert run.kernels.passes == [7, 1, 1, 6, 2, 2, 2, 2, 2, 1, 1, 1]
    assert [rows for rows, *_ in run.goodput.noted] == [1, 1, 2, 2, 2, 2, 2, 1, 1, 1]


def test_what_the_drafter_observes_is_no_part_of_a_pass(lines: list[list[int]]) -> None:
    run = simulation(kinds(lines)["half"].guess, observing=0.25)
    run.run((PROMPTS[0], PARAMS))
    assert len(run.goodput.noted) > 10
    for rows, _, _, seconds in run.goodput.noted:
        assert seconds == pytest.approx(cost(rows))


def test_prices_do_not_bring_back_what_confidence_cut(lines: list[list[int]]) -> None:
    """Goodput would keep them all; the third is below the threshold."""

    def guess(known: list[int], length: int) -> Proposal:
        tokens = oracle(lines)(known, length)
        return Proposal(tokens, None, [0.9, 0.9, 0.4, *[0.9] * length][: len(tokens)])

    clock = FakeClock(100.0)
    engine = make_engine(
        tiny_target(kernels=TimedKernels(clock, cost)),
        TimedDrafter(clock, guess, PRICE),
        EngineConfig(max_num_seqs=1, confidence_threshold=0.5),
        goodput=NotedGoodput(KNOTS, PRICE),
        clock=clock,
    )
    name = engine.add(Request(PROMPTS[0], PARAMS))
    while engine.has_unfinished:
        engine.step()
    assert len(engine.take(name).metrics.speculation.drafted_per_position) == 2
