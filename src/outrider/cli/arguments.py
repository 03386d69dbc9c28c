"""What a command line means: prompts that look like options, and hints about mistakes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from typer.core import TyperCommand, TyperOption

from outrider.types.errors import OutriderError

if TYPE_CHECKING:
    import typer

#: No option begins with a digit or a sign, and none holds a space: such an argument is a text.
TEXT: Final = re.compile(r"--?(\d|[^\w-]|[^=]*\s)")
#: How to write a prompt whatever it begins with.
AFTER_DASHES: Final = 'a prompt that begins with a dash goes last, after "--"'


class UsageError(OutriderError):
    """A command line that cannot be understood."""


class PromptCommand(TyperCommand):
    """A command whose prompt may begin with a dash where it cannot be meant as an option."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read the arguments; a prompt such as "-5 + 3 = ?" is put behind a "--".

        Raises:
            UsageError: one could be a prompt as well as an option with its value.
        """
        return super().parse_args(ctx, self._texts_last(args))

    def _texts_last(self, arguments: Sequence[str]) -> list[str]:
        end = arguments.index("--") if "--" in arguments else len(arguments)
        takes_value = self._takes_value()
        rest: list[str] = []
        texts: list[str] = []
        is_value = False
        for argument in arguments[:end]:
            chosen = rest if is_value or not _is_text(argument, takes_value) else texts
            chosen.append(argument)
            is_value = not is_value and takes_value.get(argument, False)
        texts += arguments[end + 1 :]
        return [*rest, "--", *texts] if texts else rest

    def _takes_value(self) -> dict[str, bool]:
        """The spellings of all options, and whether a value follows."""
        return {
            name: not (parameter.is_flag or parameter.count)
            for parameter in self.params
            if isinstance(parameter, TyperOption)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }


def _is_text(argument: str, options: dict[str, bool]) -> bool:
    """Whether an argument begins with a dash and is no option.

    Raises:
        UsageError: it begins as an option of one letter does, and holds a space.
    """
    if TEXT.match(argument) is None or argument.partition("=")[0] in options:
        return False
    if argument[:2] in options:
        raise UsageError(f"{argument}: is option {argument[:2]} meant? {AFTER_DASHES.capitalize()}")
    return True


def explain(error: typer.BadParameter) -> str:
    """Say in one line what the parser did not understand, and what may have been meant."""
    unknown: str | None = getattr(error, "option_name", None)
    close: Sequence[str] | None = getattr(error, "possibilities", None)
    message = " ".join((error.message if unknown else error.format_message()).split())
    hints = [f"did you mean {' or '.join(close)}?"] if close else []
    if unknown and error.ctx is not None and isinstance(error.ctx.command, PromptCommand):
        hints.append(AFTER_DASHES)
    path = "outrider" if error.ctx is None else error.ctx.command_path
    return "; ".join([message, *hints]) + f" (see {path} --help)"
