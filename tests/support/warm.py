"""Processes of the command line that begin warm.

Importing torch takes a process longer than most commands. One process does it and forks a command
for every order; the forked one has its own descriptors, signals and end, as a fresh one has. What
happens while an interpreter starts, or imports, is not seen here: those tests start fresh ones.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

#: What nearly every command imports.
PRELOADED = (
    "outrider.cli.app, outrider.llm.llm, outrider.cli.inspect.facts, rich.console, rich.table"
)
TESTS = Path(__file__).parents[1]
#: Most bytes of an order: arguments and environment.
MOST = 1 << 17


def serve(descriptor: int) -> None:
    """Fork a command for every order that comes; in the forked process, run it and end with it."""
    orders = socket.socket(fileno=descriptor)
    gc.freeze()  # or every collection would copy what is shared
    while True:
        data, streams, _, _ = socket.recv_fds(orders, MOST, 3)
        if not data:
            return
        child = os.fork()
        if child == 0:
            orders.close()
            _become(json.loads(data), streams)
        for stream in streams:
            os.close(stream)
        orders.send(child.to_bytes(8, signed=True))
        _, status = os.waitpid(child, 0)
        orders.send(os.waitstatus_to_exitcode(status).to_bytes(8, signed=True))


def _become(order: Mapping[str, list[str]], streams: Sequence[int]) -> None:
    """Run a command with standard streams of its own."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(entry.split("=", 1) for entry in order["environment"])
    for name in order["ignored"]:
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    sys.argv = ["outrider", *order["arguments"]]
    from outrider.cli.main import run

    run()


class WarmCommand:
    """A command that runs, with what tests use of ``subprocess.Popen``.

    Attributes:
        returncode: its exit status once somebody has waited for it.
    """

    def __init__(self, server: ForkServer, pid: int, files: Mapping[str, IO[bytes]]) -> None:
        self.returncode: int | None = None
        self._server = server
        self._pid = pid
        self._files = files

    @property
    def stdout(self) -> IO[bytes]:
        """What it writes, if that is a pipe."""
        return self._files["stdout"]

    @property
    def stderr(self) -> IO[bytes]:
        """What it says, if that is a pipe."""
        return self._files["stderr"]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self._pid, number)

    def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        if self.returncode is None:
            self.returncode = self._server.number()
        return self.returncode

    def communicate(self, data: bytes = b"") -> tuple[bytes, bytes]:
        """Write to it, read all that it says, and wait for its end."""
        with ThreadPoolExecutor(2) as pool:
            out, errors = (pool.submit(self._read, name) for name in ("stdout", "stderr"))
            if "stdin" in self._files:
                with suppress(BrokenPipeError), self._files["stdin"] as stdin:
                    stdin.write(data)
        self.wait()
        return out.result(), errors.result()

    def _read(self, name: str) -> bytes:
        file = self._files.get(name)
        if file is None or file.closed:
            return b""
        with file:
            return file.read()


class ForkServer:
    """The process that has imported everything. It runs one command at a time."""

    def __init__(self) -> None:
        # Keeps messages apart.
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import {PRELOADED}; from support.warm import serve; serve({theirs.fileno()})"
        paths = [str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._running: WarmCommand | None = None

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
        ignored: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> WarmCommand:
        """Start a command.

        Args:
            arguments: what is typed after "outrider".
            stdin: a descriptor, or what ``subprocess`` calls PIPE or DEVNULL.
            stdout: the same.
            stderr: the same.
            ignored: names of signals that its caller ignores.
            environment: what it finds in place of this process's own.
        """
        if self._running is not None and self._running.returncode is None:
            self._running.send_signal(signal.SIGKILL)
            self._running.wait()
        given = os.environ if environment is None else environment
        order = {
            "arguments": list(arguments),
            "environment": [f"{name}={value}" for name, value in given.items()],
            "ignored": list(ignored),
        }
        files: dict[str, IO[bytes]] = {}
        theirs = [
            _stream(files, name, wanted)
            for name, wanted in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr))
        ]
        socket.send_fds(self._orders, [json.dumps(order).encode()], theirs)
        for stream in theirs:
            os.close(stream)
        self._running = WarmCommand(self, self.number(), files)
        return self._running

    def number(self) -> int:
        """What the server answers: a process, or how one ended."""
        answer = self._orders.recv(8)
        if not answer:
            raise RuntimeError("the server has ended")
        return int.from_bytes(answer, signed=True)

    def close(self) -> None:
        """End it."""
        self._orders.close()
        self._process.wait()


def _stream(files: dict[str, IO[bytes]], name: str, wanted: int) -> int:
    """The descriptor that a command gets; our end of a pipe goes into ``files``."""
    if wanted == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR)
    if wanted != subprocess.PIPE:
        return os.dup(wanted)
    reader, writer = os.pipe()
    if name == "stdin":
        files[name] = os.fdopen(writer, "wb")
        return reader
    files[name] = os.fdopen(reader, "rb")
    return writer
