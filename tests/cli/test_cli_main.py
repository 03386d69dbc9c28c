"""Help, errors and exit statuses."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import outrider.cli.main as cli_main

SOURCE = str(Path(__file__).parents[2] / "src")


def one_line(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and "Traceback" not in text


def test_help_is_immediate(process: Any) -> None:
    """Half a second is the promise; the bound leaves room for a busy machine, but not for torch."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        ended = process("--help")
        times.append(time.perf_counter() - started)
        assert ended.status == 0
        assert "generate" in ended.out
        assert "inspect" in ended.out
    assert min(times) < 1.0


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = "torch numpy transformers tokenizers safetensors gguf huggingface_hub rich.progress"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import outrider.cli.main;"
        f"print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, SOURCE], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["generate", "chat", "bench", "check", "inspect"])
def test_every_command_has_help_with_examples(outrider: Any, command: str) -> None:
    ended = outrider(command, "--help")
    assert ended.status == 0
    assert f"\n  outrider {command}" in ended.out
    assert ended.err == ""


def test_no_arguments_show_the_help(outrider: Any) -> None:
    assert "Commands:" in outrider().out


def test_version(outrider: Any) -> None:
    import outrider as package

    assert outrider("--version").out == f"outrider {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["generate"], "prompt"),
        (["nonsense"], "nonsense"),
        (["generate", "hi", "--unknown"], "--unknown"),
        (["generate", "hi", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "hi", "--max-tokens", "0"], "max_tokens"),
        (["generate", "hi", "--device", "abacus"], "--device"),
        (["generate", "hi", "--top-p", "7"], "top_p"),
        (["generate", "hi", "--temperature", "nan"], "temperature"),
        (["generate", "hi", "--stop", ""], "stop"),
        (["generate", "hi", "--logit-bias", "five"], "--logit-bias"),
        (["bench", "--prompts", "/nonexistent"], "--prompts"),
        (["bench", "--concurrency", "0"], "--concurrency"),
        (["generate", "hi", "--model", "/nonexistent"], "/nonexistent"),
        (["chat", "--model", "/nonexistent"], "/nonexistent"),
        (["check", "--model", "/nonexistent"], "/nonexistent"),
        (["bench", "--model", "/nonexistent"], "/nonexistent"),
        (["inspect", "/nonexistent"], "/nonexistent"),
    ],
)
def test_a_users_fault_is_one_line_and_status_2(
    outrider: Any, arguments: list[str], named: str
) -> None:
    ended = outrider(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert one_line(ended.err)
    assert named in ended.err


def test_unknown_model_in_its_own_process(process: Any) -> None:
    ended = process("generate", "hi", "--model", "/nonexistent")
    assert (ended.status, ended.out) == (2, "")
    assert one_line(ended.err)


def test_a_foreign_drafter_is_refused(outrider: Any, tiny: str, foreign_drafter: str) -> None:
    ended = outrider("generate", "hi", "--model", tiny, "--drafter", foreign_drafter)
    assert (ended.status, ended.out) == (2, "")
    assert one_line(ended.err)
    assert "hidden_size is 64" in ended.err
    assert "32" in ended.err


@pytest.mark.parametrize("drafter", ["/nonexistent", "nonsense"])
def test_an_unknown_drafter_is_refused(outrider: Any, tiny: str, drafter: str) -> None:
    ended = outrider("generate", "hi", "--model", tiny, "--drafter", drafter)
    assert ended.status == 2
    assert one_line(ended.err)
    assert drafter in ended.err


def test_an_unexpected_fault_is_one_line_and_status_1(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.engine import Engine

    def fail(self: Engine) -> None:
        raise ZeroDivisionError("planted\nfault")

    monkeypatch.setattr(Engine, "step", fail)
    ended = outrider("generate", "hi", "--model", tiny)
    assert ended.status == 1
    assert one_line(ended.err)
    assert "ZeroDivisionError: planted fault" in ended.err
    assert "--debug" in ended.err
    with pytest.raises(ZeroDivisionError):
        outrider("generate", "hi", "--model", tiny, "--debug")
    with pytest.raises(ZeroDivisionError):
        outrider("--debug", "generate", "hi", "--model", tiny)


def test_ctrl_c_is_quiet(outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from outrider.engine import Engine

    def interrupt(self: Engine) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "step", interrupt)
    ended = outrider("generate", "hi", "--model", tiny)
    assert ended.status == 130
    assert ended.err == ""


def test_debug_is_a_prompt_after_two_dashes() -> None:
    assert cli_main._take_debug(["generate", "--", "--debug"])[1] is False
    assert cli_main._take_debug(["generate", "x", "--debug"]) == (["generate", "x"], True)


def test_a_closed_pipe_is_quiet(tiny: str) -> None:
    code = f"import sys; sys.path.insert(0, {SOURCE!r}); from outrider.cli.main import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "inspect", tiny],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert errors == ""
