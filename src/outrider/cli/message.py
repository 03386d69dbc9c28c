"""The user's message: an argument, a file, what is piped in, or several of them."""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import Final

from outrider.cli.console import note
from outrider.cli.streams import input_is_piped
from outrider.loaders.files import user_path
from outrider.types.errors import RequestError

#: Stands for standard input.
DASH: Final = "-"
#: Most characters of one source; more than fits any context.
MOST: Final = 1 << 26
#: Seconds without a word on a pipe after which somebody may wonder what is awaited.
PATIENCE: Final = 3.0


def read_message(argument: str | None, file: str | None) -> str:
    """Join what a user says, an empty line between the parts: the argument, then the rest.

    Args:
        argument: the words on the command line; "-" stands for standard input.
        file: a file's path; "-" stands for standard input. Without it, and unless the argument is
            "-", what is piped in follows the argument.

    Raises:
        RequestError: there is nothing, or it cannot be read.
        StreamError: standard input cannot be read, or is not UTF-8.
    """
    if argument == DASH == file:
        raise RequestError("--file", "standard input can be read once; give - once")
    parts = []
    if argument is not None:
        parts.append(_read_input() if argument == DASH else argument)
    if file is not None:
        parts.append(_read_input() if file == DASH else read_text(user_path(file), "--file"))
    elif argument != DASH and input_is_piped():
        parts.append(_read_input())
    elif argument is None:
        raise RequestError("prompt", 'is missing; write it as an argument, or use --file or "-"')
    text = "\n\n".join(part for part in parts if part)
    check_text("prompt", text)
    return text


def _read_input() -> str:
    """All of standard input. Says what is awaited if a pipe stays silent."""
    if input_is_piped() and not select.select([sys.stdin.fileno()], [], [], PATIENCE)[0]:
        note("Reading standard input to its end; </dev/null leaves it out.")
    elif sys.stdin.isatty():
        note("Type the prompt; Ctrl-D on a line of its own ends it.")
    return bounded("prompt", sys.stdin.read(MOST + 1))


def read_text(path: Path, option: str) -> str:
    """Read a text file as it is, its line ends included.

    Raises:
        RequestError: it cannot be read, is not UTF-8, or is absurdly long; it names ``option``.
    """
    try:
        # The mark that some editors begin a file with is not a part of it.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return bounded(option, lines.read(MOST + 1))
    except OSError as error:
        raise RequestError(option, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise RequestError(option, f"{path}: is not UTF-8 (byte 0x{byte:02x})") from None
    except ValueError as error:
        raise RequestError(option, f"{path!r}: cannot be read: {error}") from None


def bounded(option: str, text: str) -> str:
    """The text, unless it is absurdly long; RequestError names ``option`` then."""
    if len(text) > MOST:
        raise RequestError(option, f"is longer than {MOST:,} characters")
    return text


def check_text(option: str, text: str) -> None:
    """Refuse words of the command line that are not UTF-8: Python keeps their bytes as halves.

    Raises:
        RequestError: it names ``option``.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(option, "is not UTF-8") from None
