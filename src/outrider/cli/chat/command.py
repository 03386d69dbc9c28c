"""The command itself: who is talked to, and where the messages come from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.chat.commands import take
from outrider.cli.chat.conversation import Conversation
from outrider.cli.chat.keys import keys_wait
from outrider.cli.console import note
from outrider.cli.message import MOST, bounded, check_text
from outrider.cli.options import DraftOptions, SamplingOptions, TargetOptions, spread
from outrider.types.errors import OutriderError
from outrider.types.lines import one_line

if TYPE_CHECKING:
    from outrider.cli.chat.terminal import Terminal


@spread
def chat(
    target: TargetOptions,
    draft: DraftOptions,
    sampling: SamplingOptions,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
) -> None:
    """Talk with the model.

    Every answer is followed by its speed and by what drafting gave. /help lists what can be typed
    besides messages. Piped input is one message a line.
    """
    params = sampling.params()
    check_text("--system", system or "")
    with keys_wait():
        conversation = Conversation(draft.load(target), params, system)
    if not sys.stdin.isatty():
        for line in read_lines():
            if not take(conversation, line):
                return
        return
    from prompt_toolkit.output import create_output

    from outrider.cli.chat.terminal import Terminal

    note("/help lists the commands; Ctrl-D ends.")
    talk(conversation, Terminal(create_output(always_prefer_tty=True)))


def read_lines() -> Iterator[str]:
    """Yield the lines of standard input, which end with a line feed, or with CR and LF.

    Raises:
        RequestError: one is absurdly long.
    """
    while line := sys.stdin.readline(MOST + 1):
        yield bounded("messages", line).removesuffix("\n").removesuffix("\r")


def talk(conversation: Conversation, terminal: Terminal) -> None:
    """Serve a terminal: an error or Ctrl-C ends the turn, and not the conversation."""
    while (text := terminal.read()) is not None:
        try:
            with keys_wait():
                if not take(conversation, text):
                    return
        except KeyboardInterrupt:
            note("Cancelled; this turn is forgotten.")
        except (OutriderError, MemoryError, RuntimeError) as error:
            note(one_line(error))
