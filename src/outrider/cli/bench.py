"""``outrider bench``: speed of drafted decoding against plain decoding on the same engine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.console import note, progress_bars, write_json, write_table
from outrider.cli.options import AsJson, TargetOptions, spread
from outrider.cli.prompts import BenchPrompt, builtin_prompts, limit_prompts, read_prompts
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput
from outrider.types.progress import Progress
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import Telemetry

if TYPE_CHECKING:
    from outrider.engine import Engine, Request
    from outrider.llm.llm import LLM

PLAIN = "none"


@dataclass
class Tally:
    """What one drafter did on one category at one concurrency.

    Attributes:
        tokens: emitted after the first token of each group of requests that ran together.
        seconds: in which they were emitted.
        ttft: seconds from arrival to the first token, per request.
        tpot: seconds per later token, per request that has one.
        speculation: what drafting did.
        outputs: token ids of every request.
    """

    tokens: int = 0
    seconds: float = 0.0
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    speculation: Telemetry = field(default_factory=Telemetry)
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
        self.outputs.append(tokens)


@dataclass(frozen=True)
class BenchRow:
    """One line of the result; the fields are those of the JSON form.

    Attributes:
        drafter: "none" for plain decoding.
        category: kind of prompt.
        concurrency: requests that ran together.
        tokens_per_s: decoding speed of all requests together, prompts not counted.
        ttft_s: mean seconds to the first token.
        tpot_ms: mean milliseconds per later token of a request.
        acceptance_length: tokens per round, the target's own included.
        speedup: ``tokens_per_s`` over that of plain decoding.
        byte_equal: every answer has the tokens of plain decoding.
    """

    drafter: str
    category: str
    concurrency: int
    tokens_per_s: float
    ttft_s: float
    tpot_ms: float
    acceptance_length: float
    speedup: float
    byte_equal: bool


Key = tuple[str, str, int]


def run_group(engine: Engine, requests: Sequence[Request], tally: Tally) -> None:
    """Run requests that arrive together. The clock starts with the first emitted token."""
    ids = [engine.add(request) for request in requests]
    started: float | None = None
    while engine.has_unfinished:
        emitted = sum(len(delta.token_ids) for delta in engine.step())
        now = time.perf_counter()
        if started is not None:
            tally.tokens += emitted
            tally.seconds += now - started
            started = now
        elif emitted:
            started = now
    for request_id in ids:
        tally.add_request(engine.take(request_id))


class Bench:
    """Engines of every drafter over one model, and what they have measured.

    Every group of prompts runs through all drafters before the next group begins, so that a drift
    of the machine's speed reaches all of them alike.
    """

    def __init__(self, llm: LLM, drafters: Sequence[str]) -> None:
        self._llm = llm
        self._drafters = drafters
        self._engines = {name: llm.variant(drafter=name).engine for name in drafters}
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
        return [self._row(key, tally) for key, tally in self.tallies.items()]

    def _row(self, key: Key, tally: Tally) -> BenchRow:
        plain = self.tallies[(PLAIN, *key[1:])]
        return BenchRow(
            *key,
            tokens_per_s=tally.tokens_per_s,
            ttft_s=_mean(tally.ttft),
            tpot_ms=1000 * _mean(tally.tpot),
            acceptance_length=tally.speculation.acceptance_length,
            speedup=tally.tokens_per_s / plain.tokens_per_s if plain.tokens_per_s else 0.0,
            byte_equal=tally.outputs == plain.outputs,
        )

    def total(self, drafter: str, concurrency: int) -> BenchRow:
        """Sum up the categories; the speedup is the geometric mean of theirs."""
        mine = [k for k in self.tallies if (k[0], k[2]) == (drafter, concurrency)]
        rows = [self._row(key, self.tallies[key]) for key in mine]
        pooled = Tally()
        for key in mine:
            tally = self.tallies[key]
            pooled.tokens += tally.tokens
            pooled.seconds += tally.seconds
            pooled.ttft += tally.ttft
            pooled.tpot += tally.tpot
            pooled.speculation.add(tally.speculation)
        return BenchRow(
            drafter,
            "all",
            concurrency,
            tokens_per_s=pooled.tokens_per_s,
            ttft_s=_mean(pooled.ttft),
            tpot_ms=1000 * _mean(pooled.tpot),
            acceptance_length=pooled.speculation.acceptance_length,
            speedup=geometric_mean([row.speedup for row in rows]),
            byte_equal=all(row.byte_equal for row in rows),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def geometric_mean(values: Sequence[float]) -> float:
    """The n-th root of the product; 0.0 if there is none or one is 0."""
    if not values or min(values) <= 0.0:
        return 0.0
    return math.exp(_mean([math.log(value) for value in values]))


def _cells(row: BenchRow) -> tuple[str, ...]:
    return (
        row.category,
        row.drafter,
        str(row.concurrency),
        f"{row.tokens_per_s:.1f}",
        f"{row.ttft_s:.2f}",
        f"{row.tpot_ms:.1f}",
        f"{row.acceptance_length:.2f}",
        f"{row.speedup:.2f}",
        "yes" if row.byte_equal else "NO",
    )


COLUMNS = (
    "category",
    "drafter",
    "together",
    "tokens/s",
    "first token s",
    "ms/token",
    "tokens/round",
    "speedup",
    "same tokens",
)


def load_pyplot(path: Path) -> ModuleType:
    """Return matplotlib's plotting module, able to write ``path``.

    Raises:
        RequestError: matplotlib is not installed, or there is no such folder.
    """
    if not path.absolute().parent.is_dir():
        raise RequestError("--plot", f"{path}: its folder does not exist")
    try:
        import_module("matplotlib").use("Agg")
    except ImportError:
        raise RequestError("--plot", "needs matplotlib; install it or leave --plot out") from None
    return import_module("matplotlib.pyplot")


def plot(pyplot: ModuleType, rows: Sequence[BenchRow], path: Path) -> None:
    """Draw the speedup of every drafter by category."""
    drafted = [row for row in rows if row.drafter != PLAIN]
    series = list(dict.fromkeys((row.drafter, row.concurrency) for row in drafted))
    categories = list(dict.fromkeys(row.category for row in drafted))
    figure, axes = pyplot.subplots(figsize=(8, 4))
    width = 0.8 / max(len(series), 1)
    for index, key in enumerate(series):
        heights = [row.speedup for row in drafted if (row.drafter, row.concurrency) == key]
        places = [place + index * width for place in range(len(categories))]
        axes.bar(places, heights, width, label=f"{key[0]}, {key[1]} together")
    middle = width * (len(series) - 1) / 2
    axes.set_xticks([place + middle for place in range(len(categories))], categories)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylabel("speedup over plain decoding")
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")


@spread
def bench(
    target: TargetOptions,
    *,
    drafter: Annotated[
        list[str] | None,
        typer.Option("--drafter", "-d", help="Drafter to measure; may be repeated."),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            help='JSON lines with "category" and "prompt" or "messages"; omitted: the built-in 96.',
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most prompts of a category.")] = 8,
    concurrency: Annotated[
        list[int] | None,
        typer.Option("--concurrency", "-c", min=1, help="Requests together; may be repeated."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=2, help="Most tokens of an answer.")
    ] = 64,
    temperature: Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")] = 0.0,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw the speedups into this PNG file.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure speed by kind of prompt, plain and drafted.

    Plain decoding ("none") always runs too: it is what speedups and answers are compared with.
    Speeds count tokens after the first; the time to the first token is a column of its own.
    """
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    pyplot = load_pyplot(plot_file) if plot_file else None
    grouped = limit_prompts(read_prompts(prompts) if prompts else builtin_prompts(), limit)
    levels = list(dict.fromkeys(concurrency or [1]))
    drafters = list(dict.fromkeys([PLAIN, *(drafter or ["auto"])]))
    measured = Bench(target.load(PLAIN, max_num_seqs=max(levels)), drafters)
    with progress_bars() as progress:
        measured.warm_up()
        measured.run(grouped, levels, params, progress)
    if json:
        write_json([dict(vars(row)) for row in measured.rows()])
    else:
        _print(measured, levels, drafters)
    if plot_file is not None and pyplot is not None:
        plot(pyplot, measured.rows(), plot_file)
        note(f"wrote {plot_file}")


def _print(measured: Bench, levels: Sequence[int], drafters: Sequence[str]) -> None:
    """Put the table on the screen: categories, then the totals."""
    rows = sorted(measured.rows(), key=lambda row: (row.concurrency, row.category))
    write_table("Decoding by kind of prompt", COLUMNS, [_cells(row) for row in rows])
    totals = [measured.total(name, level) for level in levels for name in drafters]
    write_table("All kinds; speedup is the geometric mean", COLUMNS, [_cells(t) for t in totals])
