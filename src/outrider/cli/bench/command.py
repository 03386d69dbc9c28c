"""``outrider bench``: what a drafter gains, and why, by kind of prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from outrider.cli.bench.chart import check_plot, plot
from outrider.cli.bench.measure import PLAIN, Bench, BenchRow, BenchTotal
from outrider.cli.bench.prompts import builtin_prompts, limit_prompts, read_prompts
from outrider.cli.console import note, progress_bars, write_json, write_line
from outrider.cli.options import AsJson, TargetOptions, spread
from outrider.cli.table import short_names, write_table
from outrider.config.engine import EngineConfig
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams

R = TypeVar("R", bound=BenchRow)

#: Positions that the table has a column for; JSON has all.
POSITIONS: Final = 8

SPEED_COLUMNS: Final = (
    "category",
    "drafter",
    "tokens/s",
    "speedup",
    "first token s",
    "ms/token",
    "same tokens",
)
DRAFT_COLUMNS: Final = (
    "category",
    "drafter",
    "tokens/round",
    "without loops",
    "looped",
    "rounds drafted",
    "drafted/round",
    "time drafting",
)


def _speed_cells(row: BenchRow) -> tuple[str, ...]:
    return (
        row.category,
        row.drafter,
        f"{row.tokens_per_s:.1f}",
        f"{row.speedup:.2f}",
        f"{row.ttft_s:.2f}",
        f"{row.tpot_ms:.1f}",
        "yes" if row.byte_equal else "NO",
    )


def _draft_cells(row: BenchRow) -> tuple[str, ...]:
    unlooped = row.acceptance_length_unlooped
    return (
        row.category,
        row.drafter,
        f"{row.acceptance_length:.2f}",
        "-" if unlooped is None else f"{unlooped:.2f}",
        f"{row.looped} of {row.outputs}",
        f"{row.drafted_rounds_share:.0%}",
        f"{row.drafted_per_round:.2f}",
        f"{row.drafting_time_share:.0%}",
    )


def _position_cells(row: BenchRow, count: int) -> tuple[str, ...]:
    shares = [f"{share:.0%}" for share in row.acceptance_per_position[:count]]
    return (row.category, row.drafter, *shares, *["-"] * (count - len(shares)))


def _verdict(total: BenchTotal) -> str:
    """One sentence about a drafter."""
    return (
        f"{total.drafter}: {total.speedup:.2f} times plain speed (geometric mean of the "
        f"categories); slowest: {total.worst_category}, {total.worst_speedup:.2f}"
    )


def _together(levels: Sequence[int]) -> str:
    counts = ", ".join(str(level) for level in levels)
    return f"{counts} request{'' if counts == '1' else 's'} at a time"


def _title(model: str, params: SamplingParams, draft_length: int | None, together: str) -> str:
    """What a figure needs to be understood on its own."""
    drafts = "chosen by the engine" if draft_length is None else f"of {draft_length} tokens"
    heat = "greedy" if params.temperature == 0 else f"temperature {params.temperature:g}"
    name = Path(model).name
    return f"{name}, {heat}, {together}, answers of {params.max_tokens} tokens, drafts {drafts}"


def _named(row: R, names: Mapping[str, str]) -> R:
    """A row under the name that tables have room for."""
    return replace(row, drafter=names[row.drafter])


def _print(rows: Sequence[BenchRow], totals: Sequence[BenchTotal]) -> None:
    """Put the tables of every concurrency on the screen, the totals below the categories."""
    names = short_names(total.drafter for total in totals)
    rows = [_named(row, names) for row in rows]
    totals = [_named(total, names) for total in totals]
    for level in dict.fromkeys(total.concurrency for total in totals):
        mine = [row for row in (*rows, *totals) if row.concurrency == level]
        together = _together([level])
        write_table(f"Speed, {together}", SPEED_COLUMNS, [_speed_cells(row) for row in mine])
        drafted = [row for row in mine if row.drafter != PLAIN]
        if not drafted:
            continue
        title = f"Drafting, {together}"
        write_table(title, DRAFT_COLUMNS, [_draft_cells(row) for row in drafted])
        count = min(POSITIONS, max(len(row.acceptance_per_position) for row in drafted))
        if count:
            columns = ("category", "drafter", *(str(place + 1) for place in range(count)))
            cells = [_position_cells(row, count) for row in drafted]
            write_table("Drafted tokens accepted, by position in the draft", columns, cells)
        for total in totals:
            if total.concurrency == level and total.drafter != PLAIN:
                write_line(_verdict(total))


def _check_options(
    drafters: Sequence[str], draft_length: int | None, max_tokens: int, plot_file: Path | None
) -> None:
    """Refuse options that make no sense together.

    Raises:
        RequestError: it names the option that should be left out or changed.
    """
    if set(drafters) == {PLAIN}:
        for option, value in (("--draft-length", draft_length), ("--plot", plot_file)):
            if value is not None:
                raise RequestError(option, "there is no drafter to measure; add --drafter ngram")
    # The prompt gives the first token, and a round adds one of its own to what it drafts.
    if draft_length is not None and draft_length > max_tokens - 2:
        raise RequestError(
            "--draft-length",
            f"{draft_length}: an answer of {max_tokens} tokens has room for drafts of "
            f"{max_tokens - 2}; raise --max-tokens",
        )
    if plot_file is not None:
        check_plot(plot_file)


@spread
def bench(
    target: TargetOptions,
    *,
    drafter: Annotated[
        list[str] | None,
        typer.Option("--drafter", "-d", help="Drafter to measure; may be repeated."),
    ] = None,
    draft_length: Annotated[
        int | None,
        typer.Option(
            "--draft-length",
            min=1,
            help="Draft so many tokens in every round; omitted: the engine chooses what pays.",
        ),
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
        Path | None,
        typer.Option(
            "--plot", help="Draw speedups and acceptance into this file: .png, .svg or .pdf."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure speed and acceptance, plain and drafted.

    Every kind of prompt has a row of its own. Plain decoding ("none") always runs too: it is what
    speedups and answers are compared with. Speeds count tokens after the first; the time to the
    first token is a column of its own.

    A round is one pass of the model; "tokens/round" counts its own token too. "without loops"
    leaves out answers that repeat themselves, since any drafter predicts those: the last 32 tokens
    are a unit of 1 to 16 tokens three times or more, or any 12 tokens occur four times. "time
    drafting" is the drafter's share of the time of all rounds.
    """
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
    drafters = list(dict.fromkeys([PLAIN, *(drafter or ["auto"])]))
    _check_options(drafters, draft_length, max_tokens, plot_file)
    grouped = limit_prompts(read_prompts(prompts) if prompts else builtin_prompts(), limit)
    levels = list(dict.fromkeys(concurrency or [1]))
    seats = max(levels)
    batched = max(EngineConfig.max_num_batched_tokens, seats)
    llm = target.load(PLAIN, max_num_seqs=seats, max_num_batched_tokens=batched)
    measured = Bench(llm, drafters, draft_length)
    with progress_bars() as progress:
        measured.warm_up()
        measured.run(grouped, levels, params, progress)
    rows, totals = measured.rows(), measured.totals()
    if json:
        write_json({"categories": [asdict(r) for r in rows], "all": [asdict(t) for t in totals]})
    else:
        _print(rows, totals)
    if plot_file is not None:
        title = _title(target.model, params, draft_length, _together(levels))
        plot(rows, totals, plot_file, title)
        note(f"wrote {plot_file}")
