"""The ``outrider`` command: its subcommands, and how every fault ends.

    0    done
    1    the check found a difference, or an unexpected fault
    2    a fault of the user, one line on standard error
    130  Ctrl-C

Nothing heavy is imported before a command needs it, so that help is immediate.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final, cast

import typer

from outrider import __version__
from outrider.cli.bench import bench
from outrider.cli.chat.command import chat
from outrider.cli.check import check
from outrider.cli.demo import demo
from outrider.cli.generate import generate
from outrider.cli.inspect import inspect
from outrider.cli.train import train
from outrider.types.errors import OutriderError

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
outrider generate "Write a haiku." --temperature 0.8 --seed 7 --drafter none
outrider generate "Once upon a time" --raw --temperature 0 --json""",
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
outrider inspect path/to/drafter --json""",
    train: """
outrider train --out drafter                       on one GPU, half an hour
outrider train --kind mtp --model path/to/model --out head --seconds 900
outrider train --show-config > mine.json            every setting, to be edited
outrider train --out drafter --prompts questions.txt --config mine.json""",
}

#: Tells the parser to keep the lines of a paragraph as they are.
KEEP_LINES: Final = "\b\n"

app = typer.Typer(
    name="outrider",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{KEEP_LINES}Begin with:{FIRST_STEPS}",
)
for command, examples in COMMANDS.items():
    app.command(epilog=f"{KEEP_LINES}Examples:{examples}")(command)
app.command(hidden=True)(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outrider {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")
    ] = False,
) -> None:
    """Lossless speculative decoding: drafted answers with the bytes of plain ones."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _one_line(error: BaseException) -> str:
    """Return an error's message in one line."""
    return " ".join(str(error).split())


def _complain(message: str) -> None:
    sys.stderr.write(f"outrider: {message}\n")


def _take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Split off ``--debug``, wherever it stands before a ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != "--debug"]
    return [*options, *arguments[end:]], len(options) < end


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    rest, debug = _take_debug(list(arguments))
    try:
        status = app(args=rest, prog_name="outrider", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except OutriderError as error:
        if debug:
            raise
        _complain(_one_line(error))
        return 2
    except PARSER_ERROR as error:
        _complain(f"{' '.join(error.format_message().split())} (see outrider --help)")
        return 2
    except BrokenPipeError:
        return 1
    except Exception as error:
        if debug:
            raise
        _complain(
            f"{type(error).__name__}: {_one_line(error)}; run again with --debug for the traceback"
        )
        return 1
    return status if isinstance(status, int) else 0


def run() -> None:
    """Entry point of the ``outrider`` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    status = main(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader is gone; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)
