"""How the ``outrider`` command starts and ends.

    0    done
    1    "check" or "demo" found a difference
    2    a mistake of the user, one line on standard error
    70   an unexpected fault: please report it
    130  Ctrl-C
    141  nobody reads standard output any more, as "outrider ... | head" does
    143  terminated

Nothing but this module is imported before a signal ends the process quietly: an interrupt of an
import would be a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

# Known by its name to type checkers.
TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Sequence
    from types import FrameType
    from typing import Final, NoReturn
else:
    # What is built into the interpreter, without the enumerations, whose import takes a while.
    import _signal as signal

MISTAKE: Final = 2
FAULT: Final = 70
INTERRUPTED: Final = 128 + int(signal.SIGINT)
READER_GONE: Final = 128 + int(signal.SIGPIPE)
TERMINATED: Final = 128 + int(signal.SIGTERM)
STDERR: Final = 2
#: What a progress bar hides.
SHOW_CURSOR: Final = b"\x1b[?25h"


class TerminatedError(BaseException):
    """SIGTERM came; what is open is closed on the way out."""


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
        from outrider.cli.app import parse

        status = parse(rest)()
        sys.stdout.flush()
    except BaseException as error:
        return _ended_by(error, debug)
    return status


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and the errors during whose handling it was raised."""
    while error is not None:
        yield error
        error = error.__context__


def _ended_by(error: BaseException, debug: bool) -> int:
    """Say what a user needs to know about an error; return the exit status it stands for."""
    for cause in _causes(error):
        # Whatever a library makes of an interrupt, the user knows why the command ends.
        if isinstance(cause, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(cause, TerminatedError):
            return TERMINATED
    from outrider.cli.streams import ReaderGoneError
    from outrider.types.lines import one_line

    if isinstance(error, ReaderGoneError):
        return READER_GONE
    mistake = _mistake(error)
    if debug:
        import traceback

        traceback.print_exception(error)
    elif mistake is not None:
        _complain(mistake)
    else:
        name, text = type(error).__name__, one_line(error)
        said = name if text == name else f"{name}: {text}"
        _complain(f"{said}; run again with --debug for the traceback")
    return FAULT if mistake is None else MISTAKE


def _mistake(error: BaseException) -> str | None:
    """Return what the user can mend, or None if the fault is not theirs."""
    from outrider.types.errors import OutriderError
    from outrider.types.lines import one_line

    if isinstance(error, OutriderError):
        return one_line(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return str(error.strerror)
    return None


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where the signal came."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Leave by an exception; in an import at once, for many modules do not let one through."""
    if _importing(frame):
        if os.isatty(STDERR):
            os.write(STDERR, SHOW_CURSOR)
        os._exit(128 + number)
    raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError


def _catch_signals() -> None:
    """End quietly by Ctrl-C and SIGTERM, unless the caller had them ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_by_signal)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_by_signal)


def _release_signals() -> None:
    """Let them kill: Python's own last steps answer an exception with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def run() -> NoReturn:
    """Entry point of the ``outrider`` command."""
    try:
        _catch_signals()
        from outrider.cli.streams import claim_streams

        claim_streams()
        status = main(sys.argv[1:])
        _release_signals()
    except BaseException as error:
        status = _ended_by(error, debug=False)
    _flush()
    sys.exit(status)


def _flush() -> None:
    """Write what is left after a fault; what it meets must not become a traceback at exit."""
    from outrider.cli.streams import ReaderGoneError
    from outrider.types.errors import OutriderError

    try:
        sys.stdout.flush()
    except (ReaderGoneError, OutriderError):
        return
