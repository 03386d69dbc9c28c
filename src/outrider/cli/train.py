"""``outrider train``: make a drafter for a model, with nothing but the model."""

from __future__ import annotations

from dataclasses import replace
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outrider.cli.bench.prompts import builtin_prompts, limit_prompts
from outrider.cli.console import note, progress_bars, write, write_json
from outrider.cli.options import AsJson
from outrider.cli.table import write_table
from outrider.types.progress import Progress
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import Telemetry

if TYPE_CHECKING:
    from outrider.train.config import TrainConfig

#: Tokens of each held-out answer.
ANSWER_TOKENS = 96


def _show_config(wanted: bool) -> None:
    if wanted:
        from outrider.train.config import TrainConfig
        from outrider.train.config_file import documented

        write(documented(TrainConfig()))
        raise typer.Exit


def train(
    out: Annotated[Path, typer.Option(help="Folder of the finished drafter.")],
    kind: Annotated[
        Literal["dspark", "dflash", "mtp"] | None, typer.Option(help="What to train  [dspark].")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The target, as --model elsewhere  [smollm2].")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder of data, state and logs; resumes if it exists.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="JSON file of settings, as --show-config prints; options win."),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="User messages to answer, one a line; else invented ones.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=8, help="Conversations that the model writes.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Length of the training, in seconds.")
    ] = None,
    storage: Annotated[
        Literal["bf16", "q8_0", "q4_1"] | None,
        typer.Option(
            help="Form of the drafter's matrices; q4_1 drafts faster and accepts about 1% less. A "
            "finished run with another form only stores and measures it anew.  [q8_0]"
        ),
    ] = None,
    device: Annotated[
        Literal["auto", "cuda", "cpu"], typer.Option(help="Where to train.")
    ] = "auto",
    show_config: Annotated[
        bool,
        typer.Option(
            "--show-config",
            callback=_show_config,
            is_eager=True,
            help="Print every setting with what it means, as a file for --config.",
        ),
    ] = False,
    eval_prompts: Annotated[
        int, typer.Option(min=0, help="Built-in prompts per category for the final measurement.")
    ] = 4,
    json: AsJson = False,
) -> None:
    """Train a drafter: the model writes its own data.

    The run can be stopped and started again; it goes on from its work folder. At the end the
    drafter drafts for real on prompts it has not seen. Without a GPU, batches are made to fit into
    memory.
    """
    from outrider.train.config import TrainConfig
    from outrider.train.config_file import load_config
    from outrider.train.run import train as run

    base = load_config(config) if config else TrainConfig()
    given = replace(
        base,
        kind=kind or base.kind,
        model=model or base.model,
        out=str(out),
        work=str(work or f"{out}-work"),
        storage=storage or base.storage,
        device=device,
    )
    given = _limited(given, prompts, samples, seconds)
    with progress_bars() as progress:
        report = run(given, progress, tell=note)
        rows = _measure(given.model, out, eval_prompts, progress) if eval_prompts else []
    note(f"log, plot and resumable state are in {given.work}")
    if json:
        write_json({"training": loads(report.to_json()), "drafting": rows})
        return
    if not rows:
        return
    write_table(
        "Real drafting on held-out prompts",
        ["category", "tokens per round", "acceptance by position"],
        [
            [str(row["category"]), f"{row['acceptance_length']:.2f}", str(row["shown"])]
            for row in rows
        ],
    )


def _limited(
    config: TrainConfig, prompts: Path | None, samples: int | None, seconds: float | None
) -> TrainConfig:
    """Apply the options that reach into the parts of a configuration."""
    generation, optim = config.generate, config.optim
    if prompts is not None:
        generation = replace(generation, prompts=str(prompts))
    if samples is not None:
        generation = replace(generation, samples=samples, seconds=0.0)
    if seconds is not None:
        optim = replace(optim, seconds=seconds)
    return replace(config, generate=generation, optim=optim)


def _measure(
    model: str, drafter: Path, limit: int, progress: Progress
) -> list[dict[str, str | float | list[float]]]:
    """Draft greedily on the built-in prompts, whole drafts every round."""
    from outrider.llm.llm import LLM

    # Longer than any block: the engine bounds it by what the drafter can.
    llm = LLM(model, drafter=str(drafter), draft_length=64, max_num_seqs=1, progress=progress)
    totals: dict[str, Telemetry] = {}
    chosen = limit_prompts(builtin_prompts(), limit)
    params = SamplingParams(temperature=0, max_tokens=ANSWER_TOKENS)
    for done, (category, prompts) in enumerate(chosen.items()):
        for output in llm.chat([list(prompt.messages) for prompt in prompts], params):
            for name in (category, "all"):
                totals.setdefault(name, Telemetry()).add(output.metrics.speculation)
        progress("Measuring", done + 1, len(chosen))
    return [_row(name, total) for name, total in totals.items()]


def _row(category: str, total: Telemetry) -> dict[str, str | float | list[float]]:
    rates = total.acceptance_per_position
    return {
        "category": category,
        "acceptance_length": total.acceptance_length,
        "acceptance_per_position": rates,
        "shown": " ".join(f"{rate:.2f}" for rate in rates),
    }
