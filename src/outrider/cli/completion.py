"""Completion by the shell: ``--show-completion [SHELL]`` and ``--install-completion [SHELL]``.

The parser declares both options without a value and completes; here they take the name of a shell,
for the one they run in cannot always be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.cli.console import write
from outrider.types.errors import RequestError

SHOW: Final = "--show-completion"
INSTALL: Final = "--install-completion"
SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
PROGRAM: Final = "outrider"
VARIABLE: Final = "_OUTRIDER_COMPLETE"


def asks_for_completion(arguments: Sequence[str]) -> bool:
    """Whether a command line is about completion and nothing else."""
    return bool(arguments) and arguments[0].partition("=")[0] in (SHOW, INSTALL)


def complete(arguments: Sequence[str]) -> None:
    """Show or install the completion of a shell.

    Raises:
        RequestError: the shell is unknown, or is not named and cannot be told.
    """
    from typer._completion_shared import get_completion_script, install

    option, _, value = arguments[0].partition("=")
    named = [value] if value else list(arguments[1:])
    if len(named) > 1:
        raise RequestError(option, f"takes one shell, not {' '.join(named)}")
    shell = named[0] if named else _shell_around(option)
    if shell not in SHELLS:
        raise RequestError(option, f"must be {', '.join(SHELLS[:3])} or {SHELLS[3]}, not {shell}")
    if option == SHOW:
        script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
        write(script + "\n")
        return
    _, path = install(shell=shell, prog_name=PROGRAM, complete_var=VARIABLE)
    write(f"installed in {path}; begins with the next shell\n")


def _shell_around(option: str) -> str:
    """The name of the shell that this process was started from."""
    import shellingham  # type: ignore[import-untyped]

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        raise RequestError(option, f"which shell? Write {option} bash, zsh or fish") from None
    return name
