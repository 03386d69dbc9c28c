"""What ``outrider bench`` measures: drafted decoding against plain decoding over one model."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from outrider.cli.bench.prompts import BenchPrompt
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput
from outrider.types.progress import Progress
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import RoundSeconds, Telemetry

if TYPE_CHECKING:
    from outrider.engine import Engine, Request
    from outrider.llm.llm import LLM

PLAIN: Final = "none"
ALL: Final = "all"

#: An output ends in a loop if this many last tokens, and at least three periods, repeat.
LOOP_TAIL: Final = 32
#: Longest period of such an ending, in tokens.
LOOP_PERIOD: Final = 16
#: An output loops as well if one run of this many tokens occurs LOOP_COUNT times.
LOOP_GRAM: Final = 12
LOOP_COUNT: Final = 4


def loops(tokens: Sequence[int]) -> bool:
    """Whether an output repeats itself, which any drafter predicts well.

    It does if its last 32 tokens or more are one unit of 1 to 16 tokens, at least three times in a
    row; or if any 12 tokens occur at least four times in it, without overlap.
    """
    for period in range(1, LOOP_PERIOD + 1):
        tail = tokens[-max(LOOP_TAIL, 3 * period) :]
        if len(tail) >= max(LOOP_TAIL, 3 * period) and tail[period:] == tail[:-period]:
            return True
    counts: dict[tuple[int, ...], int] = {}
    ends: dict[tuple[int, ...], int] = {}
    for start in range(len(tokens) - LOOP_GRAM + 1):
        gram = tuple(tokens[start : start + LOOP_GRAM])
        if start >= ends.get(gram, 0):
            counts[gram] = counts.get(gram, 0) + 1
            ends[gram] = start + LOOP_GRAM
    return max(counts.values(), default=0) >= LOOP_COUNT


@dataclass
class Tally:
    """What one drafter did on one category, or on all, at one concurrency.

    Attributes:
        tokens: emitted after the first token of each group of requests that ran together.
        seconds: in which they were emitted.
        rounds: what the engine's rounds took in that time.
        ttft: seconds from arrival to the first token, per request.
        tpot: seconds per later token, per request that has one.
        speculation: what drafting did.
        unlooped: what it did for the outputs that do not loop.
        looped: outputs that do.
        outputs: token ids of every request.
    """

    tokens: int = 0
    seconds: float = 0.0
    rounds: RoundSeconds = field(default_factory=RoundSeconds)
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    speculation: Telemetry = field(default_factory=Telemetry)
    unlooped: Telemetry = field(default_factory=Telemetry)
    looped: int = 0
    outputs: list[list[int]] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed of all requests together; 0.0 if nothing was decoded."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def add_request(self, output: RequestOutput) -> None:
        """Count one finished request."""
        timings, tokens = output.metrics.timings, output.outputs[0].token_ids
        self.ttft.append(timings.queued_s + timings.prefill_s)
        if len(tokens) > 1:
            self.tpot.append(timings.decode_s / (len(tokens) - 1))
        self.speculation.add(output.metrics.speculation)
        if loops(tokens):
            self.looped += 1
        else:
            self.unlooped.add(output.metrics.speculation)
        self.outputs.append(tokens)

    def add(self, other: Tally) -> None:
        """Pool another category's counts with these."""
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.rounds += other.rounds
        self.ttft += other.ttft
        self.tpot += other.tpot
        self.speculation.add(other.speculation)
        self.unlooped.add(other.unlooped)
        self.looped += other.looped
        self.outputs += other.outputs


@dataclass(frozen=True)
class BenchRow:
    """One line of the result; the fields are those of the JSON form.

    A round here is one that could draft: the one that ends a prompt cannot.

    Attributes:
        drafter: "none" for plain decoding.
        category: kind of prompt.
        concurrency: requests that ran together.
        tokens_per_s: decoding speed of all requests together, prompts not counted.
        speedup: ``tokens_per_s`` over that of plain decoding.
        ttft_s: mean seconds to the first token.
        tpot_ms: mean milliseconds per later token of a request.
        acceptance_length: tokens per round, the target's own included.
        acceptance_length_unlooped: the same, of outputs that do not loop; None if there are none.
        outputs: how many outputs there were.
        looped: how many of them loop, see ``loops``.
        acceptance_per_position: share of the tokens drafted at each position that were accepted.
        drafted_per_position: how many tokens that share is of.
        drafted_rounds_share: share of the rounds in which a draft was judged.
        drafted_per_round: mean drafted tokens per round, rounds without a draft included.
        drafting_time_share: share of the rounds' time that went to the drafter.
        faults: rounds that went plain because the drafter failed.
        byte_equal: every answer has the tokens of plain decoding.
    """

    drafter: str
    category: str
    concurrency: int
    tokens_per_s: float
    speedup: float
    ttft_s: float
    tpot_ms: float
    acceptance_length: float
    acceptance_length_unlooped: float | None
    outputs: int
    looped: int
    acceptance_per_position: list[float]
    drafted_per_position: list[int]
    drafted_rounds_share: float
    drafted_per_round: float
    drafting_time_share: float
    faults: int
    byte_equal: bool


@dataclass(frozen=True)
class BenchTotal(BenchRow):
    """All categories together: pooled counts, and the geometric mean of their speedups.

    Attributes:
        worst_category: the one with the least speedup.
        worst_speedup: that speedup.
    """

    worst_category: str
    worst_speedup: float


Key = tuple[str, str, int]


def run_group(engine: Engine, requests: Sequence[Request], tally: Tally) -> None:
    """Run requests that arrive together. The clock starts with the first emitted token."""
    ids = [engine.add(request) for request in requests]
    started: float | None = None
    before = engine.round_seconds
    while engine.has_unfinished:
        emitted = sum(len(delta.token_ids) for delta in engine.step())
        now = time.perf_counter()
        if started is not None:
            tally.tokens += emitted
            tally.seconds += now - started
            started = now
        elif emitted:
            started, before = now, engine.round_seconds
    if started is not None:
        tally.rounds += engine.round_seconds - before
    for request_id in ids:
        tally.add_request(engine.take(request_id))


class Bench:
    """Engines of every drafter over one model, and what they have measured.

    Every group of prompts runs through all drafters before the next group begins, so that a drift
    of the machine's speed reaches all of them alike.
    """

    def __init__(self, llm: LLM, drafters: Sequence[str], draft_length: int | None = None) -> None:
        """Make the engines.

        Args:
            llm: the model, its engine is not used.
            drafters: names, plain decoding among them.
            draft_length: tokens to draft in every round; None lets the engines choose.

        Raises:
            OutriderError: a drafter cannot be had, or cannot draft so many tokens.
        """
        self._llm = llm
        self._engines = {
            name: llm.variant(drafter=name, draft_length=draft_length).engine for name in drafters
        }
        for name, engine in self._engines.items():
            if name != PLAIN and draft_length is not None and draft_length > engine.max_draft:
                raise RequestError(
                    "--draft-length", f'{draft_length}: "{name}" drafts at most {engine.max_draft}'
                )
        self.tallies: dict[Key, Tally] = {}

    def warm_up(self) -> None:
        """Run a few tokens through every engine, unmeasured."""
        from outrider.engine import Request

        prompt = self._llm.tokenizer.encode("One, two, three, one, two, three,", add_special=True)
        params = SamplingParams(max_tokens=8, temperature=0.0)
        for engine in self._engines.values():
            run_group(engine, [Request(prompt, params)], Tally())

    def run(
        self,
        prompts: Mapping[str, Sequence[BenchPrompt]],
        levels: Sequence[int],
        params: SamplingParams,
        progress: Progress,
    ) -> None:
        """Measure every category at every concurrency."""
        total = len(levels) * sum(len(group) for group in prompts.values())
        done = 0
        for concurrency in levels:
            for category, members in prompts.items():
                for start in range(0, len(members), concurrency):
                    group = members[start : start + concurrency]
                    self._measure((category, concurrency), group, start, params)
                    done += len(group)
                    progress("Measuring", done, total)

    def _measure(
        self,
        place: tuple[str, int],
        group: Sequence[BenchPrompt],
        start: int,
        params: SamplingParams,
    ) -> None:
        """Run one group through every drafter; prompt i of a category draws with seed i."""
        from outrider.engine import Request

        requests = [
            Request(
                self._llm.tokenizer.encode_chat(prompt.messages),
                replace(params, seed=start + offset),
            )
            for offset, prompt in enumerate(group)
        ]
        for name, engine in self._engines.items():
            tally = self.tallies.setdefault((name, *place), Tally())
            run_group(engine, requests, tally)

    def rows(self) -> list[BenchRow]:
        """One row per drafter, category and concurrency."""
        return rows_of(self.tallies)

    def totals(self) -> list[BenchTotal]:
        """One row per drafter and concurrency, over all categories."""
        return totals_of(self.tallies)


def rows_of(tallies: Mapping[Key, Tally]) -> list[BenchRow]:
    """One row per tally; those of plain decoding must be among them."""
    return [_row(key, tally, tallies[(PLAIN, *key[1:])]) for key, tally in tallies.items()]


def totals_of(tallies: Mapping[Key, Tally]) -> list[BenchTotal]:
    """Pool the categories of every drafter and concurrency."""
    pooled: dict[Key, Tally] = {}
    for (drafter, _, concurrency), tally in tallies.items():
        pooled.setdefault((drafter, ALL, concurrency), Tally()).add(tally)
    totals = []
    for row in rows_of(pooled):
        place = (row.drafter, row.concurrency)
        parts = [part for part in rows_of(tallies) if (part.drafter, part.concurrency) == place]
        worst = min(parts, key=lambda part: part.speedup)
        values = vars(row) | {"speedup": geometric_mean([part.speedup for part in parts])}
        totals.append(
            BenchTotal(**values, worst_category=worst.category, worst_speedup=worst.speedup)
        )
    return totals


def _row(key: Key, tally: Tally, plain: Tally) -> BenchRow:
    speculation, unlooped = tally.speculation, tally.unlooped
    return BenchRow(
        *key,
        tokens_per_s=tally.tokens_per_s,
        speedup=tally.tokens_per_s / plain.tokens_per_s if plain.tokens_per_s else 0.0,
        ttft_s=_mean(tally.ttft),
        tpot_ms=1000 * _mean(tally.tpot),
        acceptance_length=speculation.acceptance_length,
        acceptance_length_unlooped=unlooped.acceptance_length or None,
        outputs=len(tally.outputs),
        looped=tally.looped,
        acceptance_per_position=speculation.acceptance_per_position,
        drafted_per_position=list(speculation.drafted_per_position),
        drafted_rounds_share=speculation.drafted_rounds_share,
        drafted_per_round=speculation.drafted_per_round,
        drafting_time_share=tally.rounds.drafting_share,
        faults=speculation.faults,
        byte_equal=tally.outputs == plain.outputs,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def geometric_mean(values: Sequence[float]) -> float:
    """The n-th root of the product; 0.0 if there is none or one is 0."""
    if not values or min(values) <= 0.0:
        return 0.0
    return math.exp(_mean([math.log(value) for value in values]))
