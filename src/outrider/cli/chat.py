"""``outrider chat``: a conversation in the terminal, or over a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.console import note, summary, write
from outrider.cli.generate import pieces
from outrider.cli.options import DraftOptions, SamplingOptions, TargetOptions, spread
from outrider.types.errors import OutriderError
from outrider.types.output import RequestOutput

if TYPE_CHECKING:
    from outrider.llm.llm import LLM
    from outrider.types.sampling import SamplingParams

HELP = "/reset begins a new conversation, /quit or Ctrl-D ends; Ctrl-C cancels an answer."


def read_lines() -> Iterator[str]:
    """Yield what the user types, with line editing in a terminal, until the end of input."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - importing it gives input() line editing
    while True:
        try:
            yield input("> ")
        except EOFError:
            write("\n")
            return


class Conversation:
    """A growing list of messages and the model that answers them."""

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._messages = list(self._opening)

    def ask(self, text: str) -> None:
        """Stream the answer to one message; a turn that fails or is cancelled leaves no trace."""
        messages = [*self._messages, {"role": "user", "content": text}]
        outputs: list[RequestOutput] = []
        for piece in pieces(self._llm, messages, self._params, outputs):
            write(piece)
        write("\n")
        note(summary(outputs[0]))
        self._messages = [
            *messages,
            {"role": "assistant", "content": outputs[0].outputs[0].text},
        ]


@spread
def chat(
    target: TargetOptions,
    draft: DraftOptions,
    sampling: SamplingOptions,
    system: Annotated[str | None, typer.Option("--system", help="The system message.")] = None,
) -> None:
    """Talk with the model.

    Every answer is followed by its speed and by what drafting gave.
    """
    params = sampling.params()
    conversation = Conversation(draft.load(target), params, system)
    if sys.stdin.isatty():
        note(HELP)
    for line in read_lines():
        command = line.strip()
        if command in ("/quit", "/exit"):
            return
        if command == "/reset":
            conversation.reset()
            note("New conversation.")
        elif command.startswith("/"):
            note(HELP)
        elif command:
            _ask(conversation, line)


def _ask(conversation: Conversation, line: str) -> None:
    """Ask; in a terminal, an error or Ctrl-C ends the turn and not the conversation."""
    try:
        conversation.ask(line)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
        write("\n")
        note("Cancelled; this turn is forgotten.")
    except OutriderError as error:
        if not sys.stdin.isatty():
            raise
        note(f"{error} (/reset begins a new conversation)")
