"""What a path leads to, before anything opens it: opening a pipe would wait for a writer."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from outrider.types.errors import ModelError, OutriderError

#: Makes an error of its one line.
Fault = Callable[[str], OutriderError]

#: What each kind of entry is called, besides a file and a folder.
KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def user_path(spec: str) -> Path:
    """The path that a user types; "~" and "~name" are home folders."""
    try:
        return Path(spec).expanduser()
    except RuntimeError:  # there is no such user
        return Path(spec)


def kind_of(path: Path, error: Fault = ModelError) -> str | None:
    """Return "a file", "a folder", "a named pipe", "a device" or "a socket", links followed.

    Args:
        path: where to look.
        error: makes what is raised.

    Returns:
        None if there is nothing.

    Raises:
        OutriderError: one line, from ``error``: a link that leads nowhere, or a path that cannot be
            looked at.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise error(f"{path}: is a link that leads nowhere") from None
        return None
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise error(f"{str(path)[:200]}: cannot be read: {reason}") from None
    if stat.S_ISREG(mode):
        return "a file"
    return "a folder" if stat.S_ISDIR(mode) else KINDS.get(stat.S_IFMT(mode), "no file")


def require_file(path: Path, error: Fault = ModelError) -> None:
    """Refuse anything but a file.

    Raises:
        OutriderError: one line, from ``error``, that says what is there instead.
    """
    kind = kind_of(path, error)
    if kind is None:
        raise error(f"{path}: no such file")
    if kind != "a file":
        raise error(f"{path}: must be a file, not {kind}")


def existing_file(path: Path, error: Fault = ModelError) -> bool:
    """Whether a file is there; anything else in its place is refused as by ``require_file``."""
    if kind_of(path, error) is None:
        return False
    require_file(path, error)
    return True


def existing_folder(path: Path, error: Fault = ModelError) -> bool:
    """Whether a folder is there; anything else in its place is refused.

    Raises:
        OutriderError: one line, from ``error``, that says what is there instead.
    """
    kind = kind_of(path, error)
    if kind not in (None, "a folder"):
        raise error(f"{path}: must be a folder, not {kind}")
    return kind is not None


def check_folder(folder: Path, names: frozenset[str]) -> None:
    """Refuse a folder in which one of ``names`` is anything but a file.

    Libraries open some of these files themselves, and would wait at a pipe for ever.

    Raises:
        ModelError: one line that names the entry and what it is.
    """
    for name in sorted(names):
        existing_file(folder / name)
