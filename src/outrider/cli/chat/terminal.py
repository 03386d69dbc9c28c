"""Messages typed at a terminal: line editing, pasting, a history, and what Ctrl-C means."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output

from outrider.cli.chat.commands import COMMANDS
from outrider.cli.console import note

PROMPT: Final = "> "
CONTINUED: Final = "  "
QUESTION: Final = "End this conversation? [y/N] "


class Terminal:
    """Reads messages from a terminal."""

    def __init__(self, output: Output | None = None) -> None:
        """``output`` is where prompts go, standard output unless given."""
        self._messages: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUED,
            key_bindings=message_keys(),
            history=open_history(),
            completer=CommandCompleter(),
            complete_while_typing=False,
            enable_suspend=True,
            output=output,
        )
        self._questions: PromptSession[str] = PromptSession(
            QUESTION, key_bindings=question_keys(), output=output
        )

    def read(self) -> str | None:
        """The next message; None once the user has ended the conversation.

        Ctrl-C at an empty prompt asks first.
        """
        while True:
            try:
                return self._messages.prompt().rstrip("\n")
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self._ends():
                    return None

    def _ends(self) -> bool:
        try:
            return self._questions.prompt().strip().lower() in ("y", "yes")
        except (EOFError, KeyboardInterrupt):
            return True


def message_keys() -> KeyBindings:
    """Enter sends, unless a backslash ends the line; Alt-Enter begins a new line."""
    keys = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=typing)
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        before = buffer.document.current_line_before_cursor
        if (len(before) - len(before.rstrip("\\"))) % 2:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=typing)
    @keys.add("<sigint>", filter=typing)
    def _clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def question_keys() -> KeyBindings:
    """A first y answers at once."""
    keys = KeyBindings()

    @keys.add("y")
    @keys.add("Y")
    def _yes(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(event.data)
        if len(event.current_buffer.text) == 1:
            event.current_buffer.validate_and_handle()

    return keys


class CommandCompleter(Completer):
    """Completes the names of commands, and of files after those that take one."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of what stands before the cursor."""
        text = document.text_before_cursor
        word, gap, rest = text.partition(" ")
        if not text.startswith("/") or "\n" in text:
            return
        if gap and word[1:] in COMMANDS and COMMANDS[word[1:]].usage.endswith("FILE"):
            yield from self._paths.get_completions(Document(rest), complete_event)
        elif not gap:
            for name, command in COMMANDS.items():
                if name.startswith(word[1:]):
                    yield Completion(f"/{name}", -len(word), display_meta=command.help)


# -- history -------------------------------------------------------------------------------------


class KeptHistory(FileHistory):
    """A history in a file. One that cannot be read or written is no reason to stop."""

    _reported = False

    def load_history_strings(self) -> Iterable[str]:
        """What earlier runs kept, newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Keep a message."""
        try:
            super().store_string(string)
        except OSError as error:
            if not self._reported:
                note(f"The history cannot be written: {error.strerror or error}")
            self._reported = True


def open_history() -> History:
    """The history of all chats, readable by the user alone; in memory if there can be no file."""
    try:
        path = history_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise OSError(f"{path}: is not a file")
        # A pipe that takes the place since then must not be waited for.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600))
    except (OSError, RuntimeError) as error:
        note(f"The history is not kept: {error}")
        return InMemoryHistory()
    return KeptHistory(str(path))


def history_path() -> Path:
    """``$XDG_STATE_HOME/outrider/history``; the specification ignores relative folders."""
    folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home() / ".local" / "state"
    return folder / "outrider" / "history"
