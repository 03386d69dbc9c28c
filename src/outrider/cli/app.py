"""The subcommands of ``outrider``, and how a command line is read.

Nothing heavy is imported before a command needs it, so that help is immediate.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from shutil import get_terminal_size
from typing import Annotated, Final, cast

import typer

from outrider import __version__
from outrider.cli.arguments import PromptCommand, UsageError, explain
from outrider.cli.bench.command import bench
from outrider.cli.catalog import drafters, models
from outrider.cli.chat.command import chat
from outrider.cli.check.command import check
from outrider.cli.completion import asks_for_completion, complete
from outrider.cli.demo import demo
from outrider.cli.generate import generate
from outrider.cli.inspect.command import inspect
from outrider.cli.train import train

#: The parser's root exception. Typer bundles its parser in some releases and imports it in others;
#: this name reaches the class in both.
PARSER_ERROR: Final = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])

FIRST_STEPS: Final = """
outrider generate "Why is the sky blue?"
outrider chat
outrider check"""

COMMANDS: Final[dict[Callable[..., None], str]] = {
    generate: """
outrider generate "Why is the sky blue?" --max-tokens 64
outrider generate "Write a haiku." --temperature 0.8 --seed 7 --n 3
outrider generate "Sum this up:" --file notes.txt --system "Be brief."
git diff | outrider generate "Write a commit message."
outrider generate "Once upon a time" --raw --temperature 0 --json --logprobs 3
outrider generate --max-tokens 8 -- "--help is what?\"""",
    chat: """
outrider chat
outrider chat --temperature 0.7 --seed 1 --system "Answer in one sentence."
echo "What is a monad?" | outrider chat --max-tokens 64""",
    bench: """
outrider bench
outrider bench --drafter ngram --limit 16 --temperature 0.8 --json
outrider bench --drafter auto --drafter ngram --plot speed.png
outrider bench --drafter smollm2-dspark --draft-length 5
outrider bench --concurrency 1 --concurrency 8 --prompts mine.jsonl""",
    check: """
outrider check
outrider check --drafter ngram --drafter path/to/drafter --effort thorough
outrider check --model path/to/model --effort quick --json""",
    inspect: """
outrider inspect smollm2
outrider inspect smollm2-dspark
outrider inspect path/to/drafter --json""",
    models: """
outrider models
outrider models --json""",
    drafters: """
outrider drafters
outrider drafters --json""",
    train: """
outrider train --out drafter                       on one GPU, half an hour
outrider train --kind mtp --model path/to/model --out head --seconds 900
outrider train --show-config > mine.json            every setting, to be edited
outrider train --out drafter --prompts questions.txt --config mine.json""",
}

#: Tells the parser to keep the lines of a paragraph as they are.
KEEP_LINES: Final = "\b\n"

#: Below this, help is cut at the edge: its columns need some room.
NARROWEST: Final = 30

Command = Callable[[], int]


def _deferred(command: Callable[..., None]) -> Callable[..., Command]:
    """Let the parser return a command in place of running it.

    Run inside the parser, a command would have its interrupts, broken pipes and ends of input
    taken for the parser's own.
    """

    @functools.wraps(command)
    def parsed(**values: object) -> Command:
        return partial(_run, partial(command, **values))

    return parsed


def _run(command: Callable[[], None]) -> int:
    try:
        command()
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    return 0


app = typer.Typer(
    name="outrider",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{KEEP_LINES}Begin with:{FIRST_STEPS}",
)
for command, examples in COMMANDS.items():
    app.command(
        cls=PromptCommand if command is generate else None,
        epilog=f"{KEEP_LINES}Examples:{examples}",
    )(_deferred(command))
app.command(hidden=True)(_deferred(demo))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Show the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")
    ] = False,
) -> None:
    """Lossless speculative decoding: drafted answers with the bytes of plain ones.

    The exit status is 0 if all went well, 1 if "check" or "demo" found a difference, 2 after a
    mistake of yours, 70 after an unexpected fault, 130 after Ctrl-C, 141 if nobody reads the
    output, 143 if terminated.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _narrow_width() -> int | None:
    """The width of help on a screen that is narrower than the parser expects any to be."""
    columns = get_terminal_size().columns
    return columns - 2 if NARROWEST <= columns < 52 else None


def parse(arguments: Sequence[str]) -> Command:
    """Read a command line; what it asks for runs when the result is called.

    Raises:
        UsageError: it cannot be understood.
    """
    if asks_for_completion(arguments):
        return partial(_run, partial(complete, arguments))
    try:
        found = app(
            args=list(arguments),
            prog_name="outrider",
            standalone_mode=False,
            terminal_width=_narrow_width(),
        )
    except PARSER_ERROR as error:
        raise UsageError(explain(error)) from None
    except SystemExit as end:
        found = end.code
    if callable(found):
        return cast("Command", found)
    # Help or completion has been shown; a refusal to complete is a mistake of the caller.
    return (lambda: 2) if found else (lambda: 0)
