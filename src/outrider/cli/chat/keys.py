"""What becomes of keys that are pressed while nobody reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Tells a terminal to mark what is pasted, and to stop that.
MARK_PASTES: Final = "\x1b[?2004h"
MARK_NO_PASTES: Final = "\x1b[?2004l"


@contextmanager
def keys_wait() -> Iterator[None]:
    """Keys are not shown and not cut into lines: they wait for the next prompt, pastes as one.

    Ctrl-C interrupts as ever.
    """
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    waiting = list(before)
    waiting[0] &= ~termios.ICRNL
    waiting[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, waiting)
    try:
        _tell(MARK_PASTES)
        yield
    finally:
        _tell(MARK_NO_PASTES)
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)


def _tell(sequence: str) -> None:
    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    if stream.isatty():
        stream.write(sequence)
        stream.flush()
