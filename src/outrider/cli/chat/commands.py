"""What is typed into a chat: messages, and the commands that begin with a slash."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outrider.cli.chat import files
from outrider.cli.chat.conversation import Conversation, counted, turn_starts
from outrider.cli.console import note
from outrider.types.errors import RequestError

#: A slash and a word, and what follows. Paths and comments are messages.
_COMMAND: Final = re.compile(r"/([A-Za-z]+!?)(?:\s+(.*))?", re.DOTALL)
#: More slashes than one before a word: one of them only says that this is a message.
_ESCAPED: Final = re.compile(r"(\s*)/(/+[A-Za-z])")

AFTERWORD: Final = """
//word        send a message that begins with /word
Alt-Enter     a new line, as does \\ at the end of one; a paste is one message
Ctrl-C        clear what is typed, or cancel the answer"""


@dataclass(frozen=True)
class Command:
    """What a word after a slash does.

    Attributes:
        usage: how it is typed: the word, and what follows it if anything may.
        help: what it does.
        run: does it, given what follows the word.
    """

    usage: str
    help: str
    run: Callable[[Conversation, str], None]

    @property
    def takes_text(self) -> bool:
        """Whether anything may follow the word."""
        return " " in self.usage


def take(conversation: Conversation, text: str) -> bool:
    """Run a command or send a message; returns whether the conversation goes on.

    Raises:
        RequestError: the message cannot be served, or the command cannot be run.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is not None:
        command, rest = _find(match[1]), (match[2] or "").strip()
        if rest and not command.takes_text:
            raise RequestError(
                f"/{match[1]}",
                f"takes nothing after it; //{match[1]} ... sends what you typed as a message",
            )
        command.run(conversation, rest)
        return command is not QUIT
    if text.strip():
        escaped = _ESCAPED.match(text)
        conversation.ask(text[: escaped.end(1)] + text[escaped.start(2) :] if escaped else text)
    return True


def _find(word: str) -> Command:
    name = ALIASES.get(word.lower(), word.lower())
    if name in COMMANDS:
        return COMMANDS[name]
    near = difflib.get_close_matches(name, COMMANDS, 1)
    meant = f"did you mean /{near[0]}? " if near else ""
    raise RequestError(
        f"/{word}", f"is no command; {meant}/help lists them, and //{word} sends it as a message"
    )


def _help(conversation: Conversation, rest: str) -> None:
    lines = [f"{command.usage:<13} {command.help}" for command in COMMANDS.values()]
    note("\n".join(lines) + AFTERWORD)


def _system(conversation: Conversation, text: str) -> None:
    if text:
        conversation.system = "" if text in ('""', "''") else text
    note(f"System message: {conversation.system}" if conversation.system else "No system message.")


def _reset(conversation: Conversation, rest: str) -> None:
    conversation.reset()
    note("New conversation.")


def _undo(conversation: Conversation, rest: str) -> None:
    asked = conversation.undo()
    left = counted(len(turn_starts(conversation.messages)), "turn")
    note(f"Forgot {str(asked['content'])!r:.50}; {left} left.")


def _retry(conversation: Conversation, rest: str) -> None:
    conversation.retry()


def _continue(conversation: Conversation, rest: str) -> None:
    conversation.go_on()


def _save(conversation: Conversation, name: str) -> None:
    _write(conversation, name, replace=False)


def _save_over(conversation: Conversation, name: str) -> None:
    _write(conversation, name, replace=True)


def _write(conversation: Conversation, name: str, *, replace: bool) -> None:
    path = _path("/save", name)
    if not conversation.messages:
        raise RequestError("/save", "there is nothing to save yet")
    files.save(conversation.messages, path, replace=replace)
    note(f"Saved {counted(len(conversation.messages), 'message')} to {path}.")


def _load(conversation: Conversation, name: str) -> None:
    path = _path("/load", name)
    conversation.load(files.load(path))
    messages = conversation.messages
    waiting = " The last one is not answered; /retry answers it."
    note(
        f"Loaded {counted(len(messages), 'message')} from {path}."
        + (waiting if messages[-1]["role"] == "user" else "")
    )


def _quit(conversation: Conversation, rest: str) -> None:
    """Nothing more is to be done."""


def _path(name: str, text: str) -> Path:
    if not text:
        raise RequestError(name, f"needs the name of a file, as in {name} talk.json")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise RequestError(name, f"{text}: {error}") from None


QUIT: Final = Command("/quit", "end, as does Ctrl-D", _quit)
COMMANDS: Final[dict[str, Command]] = {
    "help": Command("/help", "this list", _help),
    "system": Command("/system TEXT", 'set the system message ("" for none), or show it', _system),
    "reset": Command("/reset", "begin a new conversation", _reset),
    "undo": Command("/undo", "forget the last turn", _undo),
    "retry": Command("/retry", "answer the last message anew", _retry),
    "continue": Command("/continue", "go on with an answer that was cut", _continue),
    "save": Command("/save FILE", "write the conversation as JSON", _save),
    "save!": Command("/save! FILE", "the same, over a file that exists", _save_over),
    "load": Command("/load FILE", "go on with a conversation that was saved", _load),
    "quit": QUIT,
}
ALIASES: Final = {"exit": "quit", "bye": "quit", "clear": "reset", "h": "help", "q": "quit"}
