"""Help, errors and exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outrider.cli.main as cli_main

SOURCE = str(Path(__file__).parents[2] / "src")


COMMANDS = ["generate", "chat", "bench", "check", "inspect", "models", "drafters", "train"]


def one_line(text: str) -> bool:
    return text.endswith("\n") and text.count("\n") == 1 and "Traceback" not in text


#: Modules that take long to import. No help text, completion or refusal of an option needs one.
HEAVY = (
    "torch numpy transformers tokenizers safetensors gguf huggingface_hub jinja2 matplotlib "
    "rich.progress prompt_toolkit outrider.llm outrider.engine outrider.kernels"
)


LIGHT = {
    "--help": 0,
    "generate --help": 0,
    "train --help": 0,
    "--version": 0,
    "--show-completion bash": 0,
    "generate --nonsense": 2,
    "generate hi --top-p 7": 2,
}
#: Runs command lines one after another and says what each of them left imported.
OBSERVED = """
import json, sys
source, given, heavy = sys.argv[1], *map(json.loads, sys.argv[2:])
sys.path.insert(0, source)
from outrider.cli.main import main
for line in given:
    status = main(line.split())
    print(json.dumps({line: [status, [name for name in heavy if name in sys.modules]]}))
"""


def test_what_needs_no_model_imports_nothing_heavy() -> None:
    """One process does for all: what one of them imported, every later one would have too."""
    lists = json.dumps(list(LIGHT)), json.dumps(HEAVY.split())
    done = subprocess.run(
        [sys.executable, "-c", OBSERVED, SOURCE, *lists],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            found |= json.loads(line)
    assert found == {line: [status, []] for line, status in LIGHT.items()}


def test_nothing_else_is_imported_before_signals_are_caught() -> None:
    """An interrupt before that would be a traceback. Without ``site``, which imports ``os``: an
    editable install is found by a hook that imports more than the product does.
    """
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules);"
        "import outrider.cli.main; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, SOURCE],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(done.stdout.split())
    assert found == {"__future__", "errno", "outrider", "outrider.cli", "outrider.cli.main"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(outrider: Any, command: str) -> None:
    ended = outrider(command, "--help")
    assert ended.status == 0
    assert f"\n  outrider {command}" in ended.out
    assert ended.err == ""


def test_no_arguments_show_the_help(outrider: Any) -> None:
    assert "Commands:" in outrider().out


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("command", [(), *[(name,) for name in COMMANDS]])
def test_help_fits_the_screen(
    outrider: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ended = outrider(*command, "--help")
    assert ended.status == 0
    # Examples are kept as they are typed.
    text = ended.out.partition("Examples:")[0].partition("Begin with:")[0]
    assert max(len(line) for line in text.splitlines()) <= columns
    if columns == 80:
        assert "..." not in text.replace("COMMAND [ARGS]...", "")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(outrider: Any, option: str) -> None:
    import outrider as package

    assert outrider(option).out == f"outrider {package.__version__}\n"


def test_python_m_outrider_is_the_command() -> None:
    import outrider as package

    done = subprocess.run(
        [sys.executable, "-m", "outrider", "--version"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"outrider {package.__version__}\n"


@pytest.mark.parametrize(
    ("shell", "mark"),
    [
        ("bash", "complete -o default -F _outrider_completion outrider"),
        ("zsh", "#compdef outrider"),
        ("fish", "complete --command outrider"),
    ],
)
def test_completion_of_every_shell_is_shown(outrider: Any, shell: str, mark: str) -> None:
    for arguments in (("--show-completion", shell), (f"--show-completion={shell}",)):
        ended = outrider(*arguments)
        assert ended.status == 0
        assert mark in ended.out
        assert "_OUTRIDER_COMPLETE=complete_" in ended.out


def test_completion_is_installed_where_the_shell_looks(
    outrider: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert outrider("--install-completion", "bash").status == 0
    script = tmp_path / ".bash_completions/outrider.sh"
    assert "complete -o default" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def test_completion_of_an_unknown_shell_is_refused(outrider: Any) -> None:
    ended = outrider("--show-completion", "command.com")
    assert (ended.status, ended.out) == (2, "")
    assert one_line(ended.err)
    assert "bash, zsh, fish or powershell" in ended.err


def test_words_are_completed(outrider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_OUTRIDER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "outrider generate --max")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert outrider().out.split() == ["--max-model-len", "--max-tokens"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generate", "hi", "--tempreature", "0"], "did you mean --temperature?"),
        (["generate", "hi", "--max-new-tokens", "4"], "did you mean --max-tokens"),
        (["genrate"], "Did you mean 'generate'?"),
        (["bench", "--drafters", "ngram"], "did you mean --drafter"),
        (["chat", "--tempreature", "0"], "(see outrider chat --help)"),
        (["generate", "hi", "--device", "cuda"], "'auto', 'cpu'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    outrider: Any, arguments: list[str], hint: str
) -> None:
    ended = outrider(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert one_line(ended.err)
    assert hint in ended.err


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


def test_an_unexpected_fault_is_one_line_and_a_status_of_its_own(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.engine import Engine

    def fail(self: Engine) -> None:
        raise ZeroDivisionError("planted\nfault")

    monkeypatch.setattr(Engine, "step", fail)
    ended = outrider("generate", "hi", "--model", tiny)
    assert ended.status == 70
    assert one_line(ended.err)
    assert "ZeroDivisionError: planted fault" in ended.err
    assert "--debug" in ended.err
    for arguments in (
        ("generate", "hi", "--model", tiny, "--debug"),
        ("--debug", "generate", "hi", "--model", tiny),
    ):
        ended = outrider(*arguments)
        assert ended.status == 70
        assert ended.err.startswith("Traceback")
        assert "ZeroDivisionError: planted\nfault" in ended.err


def test_debug_keeps_the_status_of_a_mistake(outrider: Any) -> None:
    ended = outrider("generate", "hi", "--model", "/nonexistent", "--debug")
    assert ended.status == 2
    assert "ModelError: /nonexistent" in ended.err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (EOFError("planted"), 70, "EOFError: planted"),
        (BrokenPipeError(32, "planted"), 70, "BrokenPipeError"),
        (SystemExit(1), 70, "SystemExit"),
        (PermissionError(13, "Permission denied", "/root/x"), 2, "/root/x: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MemoryError(), 70, "MemoryError"),
    ],
)
def test_what_a_library_raises_is_not_taken_for_the_parsers_own(
    outrider: Any,
    tiny: str,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    said: str,
) -> None:
    from outrider.engine import Engine

    def fail(self: Engine) -> None:
        raise error

    monkeypatch.setattr(Engine, "step", fail)
    ended = outrider("generate", "hi", "--model", tiny)
    assert ended.status == status
    assert one_line(ended.err)
    assert said in ended.err


def test_an_interrupt_that_a_library_makes_an_error_of_is_one(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.engine import Engine

    def interrupt(self: Engine) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise ImportError("half imported")  # noqa: B904 - as careless libraries do

    monkeypatch.setattr(Engine, "step", interrupt)
    ended = outrider("generate", "hi", "--model", tiny)
    assert (ended.status, ended.err) == (130, "")


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
