"""The standard streams of a command: what fails says which stream it was, and input is UTF-8."""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, Final

from outrider.types.errors import OutriderError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


class StreamError(OutriderError):
    """A standard stream cannot be read or written."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more; the command ends without a word."""


def _fault(stream: str, error: OSError) -> StreamError:
    # A closed stream is held open in the wrong direction; see ``_fill``.
    closed = error.errno == errno.EBADF
    return StreamError(f"{stream} is closed" if closed else f"{stream}: {error.strerror}")


class _Input(io.RawIOBase):
    """Standard input: bytes pass if they are UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1

    def readable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return STDIN

    def isatty(self) -> bool:
        """Whether a person types it."""
        return os.isatty(STDIN)

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what there is; 0 at the end.

        Raises:
            StreamError: it cannot be read, or holds something that is not UTF-8.
        """
        view = memoryview(buffer).cast("B")
        try:
            count = _wait_read(view)
        except OSError as error:
            raise _fault("standard input", error) from None
        self._check(bytes(view[:count]))
        return count

    def _check(self, data: bytes) -> None:
        try:
            self._line += self._decoder.decode(data, final=not data).count("\n")
        except UnicodeDecodeError as error:
            line = self._line + error.object[: error.start].count(b"\n")
            raise StreamError(
                f"standard input: line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x})"
            ) from None


def _wait_read(view: memoryview) -> int:
    """Read, also from a descriptor that another program left non-blocking."""
    while True:
        try:
            return os.readv(STDIN, [view])
        except BlockingIOError:
            select.select([STDIN], [], [])


class _Output(io.RawIOBase):
    """Standard output. It fails once and swallows what follows, so that nothing fails at exit."""

    def __init__(self) -> None:
        self._failed = False

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return STDOUT

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(STDOUT)

    def write(self, data: ReadableBuffer) -> int:
        """Write some of ``data``; returns how many bytes.

        Raises:
            ReaderGoneError: it is a pipe that nobody reads.
            StreamError: it cannot be written for another reason.
        """
        if self._failed:
            return memoryview(data).nbytes
        try:
            return _wait_write(self.fileno(), data)
        except OSError as error:
            self._failed = True
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> Exception:
        if isinstance(error, BrokenPipeError):
            return ReaderGoneError()
        return _fault("standard output", error)


class _Errors(_Output):
    """Standard error: what cannot be said there is lost, and the command goes on."""

    def fileno(self) -> int:
        """The descriptor."""
        return STDERR

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(STDERR)

    def write(self, data: ReadableBuffer) -> int:
        """Write some of ``data`` if that is possible."""
        try:
            return super().write(data)
        except (ReaderGoneError, StreamError):
            return memoryview(data).nbytes


def _wait_write(descriptor: int, data: ReadableBuffer) -> int:
    """Write, also to a descriptor that another program left non-blocking."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            select.select([], [descriptor], [])


def _fill(descriptor: int, flags: int) -> None:
    """Give a closed descriptor to the null device, so that no file opened later gets its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, flags)
        if null == descriptor:
            os.set_inheritable(null, True)
        else:
            os.dup2(null, descriptor)
            os.close(null)


def claim_streams() -> None:
    """Put streams of this module in place of the process's own, closed ones included.

    Raises:
        StreamError: standard output is closed, so no command can do its work.
    """
    # Held open the wrong way round, a closed input still fails to read and a closed output to
    # write, both with EBADF.
    _fill(STDIN, os.O_WRONLY)
    _fill(STDOUT, os.O_RDONLY)
    _fill(STDERR, os.O_WRONLY)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # Text is read as it is: a line ends with "\n" alone, and only the mark at its start is dropped.
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_Input()), "utf-8-sig", "strict", newline="\n")
    sys.stdout = _writer(_Output(), encoding, lines=os.isatty(STDOUT))
    sys.stderr = _writer(_Errors(), encoding, lines=True)
    try:
        os.write(STDOUT, b"")
    except OSError as error:
        raise _fault("standard output", error) from None


def _writer(raw: _Output, encoding: str, *, lines: bool) -> io.TextIOWrapper:
    """A text stream in which what the encoding lacks is escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=lines
    )


def input_is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file: something that a user put there."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)
