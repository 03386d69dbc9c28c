"""Values and errors as messages show them: in one line."""

from __future__ import annotations

from typing import Final

#: Characters of a refused value that its message shows.
SHOWN: Final = 60


def shown(value: object) -> str:
    """A value for a message: one short line."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python writes
        return f"an integer of {int(value).bit_length()} bits" if isinstance(value, int) else "it"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def one_line(error: BaseException) -> str:
    """What an error says; the name of its type if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
