"""Standard streams that are closed, full, broken or not UTF-8, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.warm import ForkServer, WarmCommand

SOURCE = str(Path(__file__).parents[2] / "src")
COMMAND = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {SOURCE!r}); from outrider.cli.main import run; run()",
]
FULL = Path("/dev/full")


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """A command in a fresh interpreter, which meets its streams before anything else."""
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **options)


def errors_of(process: subprocess.Popen[bytes] | WarmCommand) -> str:
    """What a process says on standard error until it ends."""
    return process.communicate()[1].decode()


@pytest.fixture
def warm(server: ForkServer) -> Callable[..., WarmCommand]:
    """The same in a process that need not import anything."""

    def begin(*arguments: object, **options: Any) -> WarmCommand:
        return server.start([str(argument) for argument in arguments], **options)

    return begin


def closing(descriptor: int) -> Any:
    return lambda: os.close(descriptor)


GREEDY = ("--temperature", "0", "--max-tokens", "8")


@pytest.mark.parametrize("arguments", [("generate", "hi"), ("--help",), ("inspect", "ngram")])
def test_a_closed_output_is_a_mistake(arguments: tuple[str, ...]) -> None:
    process = start(*arguments, preexec_fn=closing(1))
    assert errors_of(process) == "outrider: standard output is closed\n"
    assert process.returncode == 2


@pytest.mark.parametrize("arguments", [("generate", "-"), ("generate", "--file", "-"), ("chat",)])
def test_a_closed_input_is_a_mistake(tiny: str, arguments: tuple[str, ...]) -> None:
    process = start(
        *arguments, "--model", tiny, stdin=None, stdout=subprocess.DEVNULL, preexec_fn=closing(0)
    )
    assert errors_of(process) == "outrider: standard input is closed\n"
    assert process.returncode == 2


def test_a_closed_input_that_is_not_needed_is_no_mistake(tiny: str) -> None:
    process = start(
        "generate",
        "hi",
        *GREEDY,
        "--model",
        tiny,
        stdin=None,
        stdout=subprocess.PIPE,
        preexec_fn=closing(0),
    )
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out


@pytest.mark.parametrize("how", ["closed", "full", "broken"])
def test_what_cannot_be_said_on_standard_error_is_lost_and_no_more(
    warm: Any, tiny: str, how: str
) -> None:
    """The file that would get the closed number is one of the model's."""
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open(FULL, os.O_WRONLY)
    options: dict[str, Any] = {
        "closed": {"stderr": None, "preexec_fn": closing(2)},
        "full": {"stderr": full},
        "broken": {"stderr": writer},
    }[how]
    arguments = ("generate", "abc", "--model", tiny, "-v", *GREEDY)
    begin = start if how == "closed" else warm
    process = begin(*arguments, stdout=subprocess.PIPE, **options)
    out, _ = process.communicate()
    refused = begin("generate", "hi", "--nonsense", stdout=subprocess.DEVNULL, **options)
    assert (process.returncode, refused.wait()) == (0, 2)
    os.close(writer)
    os.close(full)
    assert out.endswith(b"\n")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [("inspect", "ngram"), ("--help",), ("drafters", "--json"), ("--show-completion", "bash")],
)
def test_a_full_output_is_one_line(warm: Any, arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        process = warm(*arguments, stdout=full.fileno())
        assert errors_of(process) == "outrider: standard output: No space left on device\n"
    assert process.returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "hi", *GREEDY),
        ("generate", "hi", *GREEDY, "--json"),
        ("generate", "hi", *GREEDY, "--n", "2"),
        ("inspect",),
    ],
)
def test_a_reader_that_is_gone_ends_a_command_quietly(
    warm: Any, tiny: str, arguments: tuple[str, ...]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    model = (tiny,) if arguments[0] == "inspect" else ("--model", tiny)
    process = warm(*arguments, *model, stdout=writer)
    os.close(writer)
    assert errors_of(process) == ""
    assert process.returncode == 141


def test_a_reader_may_leave_in_the_middle(warm: Any, tiny: str) -> None:
    process = warm(
        "generate",
        "hi",
        "--model",
        tiny,
        "--ignore-eos",
        "--max-tokens",
        "400",
        stdout=subprocess.PIPE,
    )
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_output_that_was_left_non_blocking_is_written_whole(warm: Any, tiny: str) -> None:
    """A pipe takes 64 KiB; more has to wait for the reader."""
    arguments = ("generate", "abc", "--model", tiny, "--json", "--logprobs", "20", "--ignore-eos")
    arguments += ("--max-tokens", "200", "--temperature", "0")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = warm(*arguments, stdout=writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        whole = stream.read()
    assert errors_of(process) == ""
    assert process.returncode == 0
    assert len(whole) > 1 << 16
    assert whole.endswith(b"}\n")


@pytest.mark.parametrize(
    ("locale", "coding"),
    [
        ("C.UTF-8", None),
        ("C", None),
        ("POSIX", "latin-1"),
        ("C.UTF-8", "utf-8:strict"),
        ("C", "utf-8:surrogateescape"),
    ],
)
def test_input_that_is_not_utf8_is_a_mistake_in_every_locale(
    tiny: str, locale: str, coding: str | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    environment["LC_ALL"] = locale
    if coding is not None:
        environment["PYTHONIOENCODING"] = coding
    process = start(
        "generate",
        "-",
        "--model",
        tiny,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    out, errors = process.communicate(b"gr\xc3\xbcn\nau caf\xe9")
    assert (process.returncode, out) == (2, b"")
    assert errors == b"outrider: standard input: line 2 is not UTF-8 (byte 0xe9)\n"


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize("data", [b"cut off: \xe2\x82", b"\x80\n", b"half \xed\xa0\x80 pair\n"])
def test_every_way_not_to_be_utf8(warm: Any, tiny: str, command: str, data: bytes) -> None:
    arguments = ("generate", "-") if command == "generate" else ("chat",)
    process = warm(
        *arguments, "--model", tiny, "-n", "2", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    _, errors = process.communicate(data)
    assert process.returncode == 2
    assert errors.startswith(b"outrider: standard input: line 1 is not UTF-8 (byte 0x")
    assert errors.count(b"\n") == 1


#: Sends itself a signal in the middle of the import of a heavy module.
INTERRUPTED_IMPORT = """
import os, signal, sys
sys.path.insert(0, {source!r})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Finder())
from outrider.cli.main import run
run()
"""


@pytest.mark.parametrize("module", ["outrider.cli.streams", "typer", "torch", "tokenizers"])
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_during_imports_is_quiet(tiny: str, module: str, name: str, status: int) -> None:
    code = INTERRUPTED_IMPORT.format(source=SOURCE, module=module, name=name)
    done = subprocess.run(
        [sys.executable, "-c", code, "generate", "hi", "--model", tiny],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
@pytest.mark.parametrize("form", [(), ("-v",)])
def test_a_signal_while_decoding_is_quiet(
    warm: Any, tiny: str, number: signal.Signals, status: int, form: tuple[str, ...]
) -> None:
    process = warm(
        "generate",
        "hi",
        "--model",
        tiny,
        "--ignore-eos",
        "--max-tokens",
        "480",
        "--kernels",
        "reference",
        *form,
        stdout=subprocess.PIPE,
    )
    process.stdout.read(1)
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (status, b"")


def test_a_signal_that_the_caller_ignores_stays_ignored(warm: Any, tiny: str) -> None:
    process = warm(
        "generate",
        "hi",
        "--model",
        tiny,
        "--ignore-eos",
        "--max-tokens",
        "300",
        stdout=subprocess.PIPE,
        ignored=["SIGINT"],
    )
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0
