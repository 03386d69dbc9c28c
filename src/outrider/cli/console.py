"""Where commands write: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from outrider.types.output import RequestOutput
from outrider.types.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console


def write(text: str) -> None:
    """Put text on standard output at once, without a line break."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_line(text: str) -> None:
    """Put a line on standard output; a terminal gets it broken between words."""
    from shutil import get_terminal_size
    from textwrap import fill

    write(f"{fill(text, get_terminal_size().columns) if sys.stdout.isatty() else text}\n")


def write_json(value: object) -> None:
    """Put one JSON value on standard output, in ASCII so that it is valid in every encoding."""
    write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def error_console() -> Console:
    """Return a console on standard error that takes text literally."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Put one line on standard error, dimmed if that is a terminal."""
    error_console().print(text, style="dim")


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Draw the progress of labelled work on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Display(*columns, console=error_console(), transient=True) as display:
        tasks: dict[str, TaskID] = {}

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = display.add_task(label, total=total)
            display.update(tasks[label], completed=done, total=total)

        yield report


def summary(output: RequestOutput) -> str:
    """Say in one line how fast an answer was and what drafting did for it."""
    tokens = sum(len(completion.token_ids) for completion in output.outputs)
    speculation = output.metrics.speculation
    parts = [
        f"{tokens} tokens",
        f"{output.metrics.timings.tokens_per_s(tokens):.1f} tokens/s",
        f"{speculation.accepted} of {speculation.drafted} draft tokens accepted"
        f" ({output.metrics.drafter})",
        f"{speculation.acceptance_length:.2f} tokens per round",
    ]
    return ", ".join(parts)
