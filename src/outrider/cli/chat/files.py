"""Conversations on disk: a JSON list of messages, as ``LLM.chat`` takes them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from outrider.text.messages import Message, checked_messages
from outrider.types.errors import RequestError


def save(messages: Sequence[Message], path: Path, *, replace: bool) -> None:
    """Write a conversation; a file that is there is as before, or wholly replaced.

    A new file is the user's own; one that is replaced keeps its permissions.

    Raises:
        RequestError: it is there and ``replace`` is false, or it cannot be written.
    """
    text = json.dumps(list(messages), indent=2, ensure_ascii=False) + "\n"
    if _no_file(path):
        raise RequestError("/save", f"{path}: is not a file")
    try:
        if not replace:
            # Takes the name, or fails if it is taken, even since it was looked at.
            path.touch(mode=0o600, exist_ok=False)
        _write(path.resolve(), text, fresh=not replace)
    except FileExistsError:
        raise RequestError("/save", f"{path} exists; /save! {path} replaces it") from None
    except (OSError, ValueError) as error:
        raise RequestError("/save", f"{path}: cannot be written: {_reason(error)}") from None


def _write(path: Path, text: str, *, fresh: bool) -> None:
    """Put a whole text in the place of a file; if that fails, a fresh file is taken away."""
    partial = None
    try:
        # Not named after the file, whose name may be as long as names can be.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".outrider-")
        partial = Path(name)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    except BaseException:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        raise


def load(path: Path) -> list[Message]:
    """Read a conversation: a list of messages, or an object that holds them under "messages".

    Raises:
        RequestError: it cannot be read, or holds something else.
    """
    if _no_file(path):
        raise RequestError("/load", f"{path}: is not a file")
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise RequestError("/load", f"{path}: is not UTF-8 text") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError("/load", f"{path}: cannot be read: {_reason(error)}") from None
    if isinstance(value, Mapping) and "messages" in value:
        value = value["messages"]
    try:
        return checked_messages(value)
    except RequestError as error:
        raise RequestError("/load", f"{path}: {error}") from None


def _no_file(path: Path) -> bool:
    """Whether something else than a file is there; a path that cannot be looked at is none."""
    return os.path.exists(path) and not os.path.isfile(path)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
