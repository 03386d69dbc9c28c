"""One run of tests on code with a fault, in a process of its own; no file is touched."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from mutation.faults import Fault

#: Most memory of a trial: a loop that does not end must not take the machine with it.
MEMORY: Final = 8 << 30


@dataclass(frozen=True)
class Outcome:
    """How a trial went.

    Attributes:
        result: "killed", "survived", "late" (killed by the time limit), or "unused" if no test
            imported the module.
        by: the first test that failed.
        seconds: how long it took.
    """

    result: str
    by: str
    seconds: float

    @property
    def noticed(self) -> bool:
        """Whether the fault was seen."""
        return self.result in ("killed", "late")


def run_trial(fault: Fault | None, tests: Sequence[str], limit: float, log: Path) -> Outcome:
    """Run tests, with a fault or with none, in a fork of this process.

    What the tests import is loaded here once and not for every fault; the package itself is not.
    """
    begun = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _serve(fault, tests, log, write)
    os.close(write)
    late = not _ended(child, begun + limit)
    if late:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        result, _, by = answer.read().partition(" ")
    seconds = time.monotonic() - begun
    if late:
        return Outcome("late", "", seconds)
    return Outcome(result or "killed", by if result else "the process ended", seconds)


def _ended(child: int, deadline: float) -> bool:
    """Wait for the child; return whether it ended in time."""
    pause = 0.01
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    return True


def _serve(fault: Fault | None, tests: Sequence[str], log: Path, answer: int) -> None:
    """The child: run the tests, say what happened, and leave without cleaning up."""
    code = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        with tempfile.TemporaryDirectory() as scratch:
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = scratch
            os.write(answer, _run(fault, tests).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(fault: Fault | None, tests: Sequence[str]) -> str:
    planted = None if fault is None else _Planted(fault)
    if planted is not None:
        sys.meta_path.insert(0, planted)
    watch = _Watch()
    # Plugins that came with what was loaded before the fork cannot be rewritten; nobody reads them.
    loaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=short", *loaded]
    status = pytest.main([*options, *tests], plugins=[watch])
    if status == pytest.ExitCode.OK:
        return "survived" if planted is None or planted.used else "unused"
    return f"killed {watch.failed or status.name}"


class _Planted(MetaPathFinder):
    """Loads one module from changed source."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.used = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        self.used = True
        return spec_from_file_location(
            fullname, self._fault.path, loader=_Loader(fullname, self._fault)
        )


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, fault: Fault) -> None:
        super().__init__(fullname, str(fault.path))
        self._source = fault.source.encode()

    def get_data(self, path: str) -> bytes:
        return self._source

    def path_stats(self, path: str) -> Any:
        raise OSError("compiled anew: what is on disk has no fault")


class _Watch:
    """A plugin that remembers the first failure."""

    def __init__(self) -> None:
        self.failed = ""

    def _note(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)
