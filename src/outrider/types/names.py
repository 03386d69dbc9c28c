"""Refuses parameters that do not exist, and says how what was meant is called here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from outrider.types.errors import RequestError


def refuse_unknown(
    names: Iterable[str], known: Iterable[str], hints: Mapping[str, str], what: str
) -> None:
    """Refuse the first of ``names`` that is not one of ``known``.

    Args:
        names: what was given.
        known: what exists.
        hints: for names that other software uses, the one that is known here, or a sentence.
        what: what a name should have been, as in "sampling parameter".

    Raises:
        RequestError: it names the parameter and what would be right.
    """
    exist = list(known)
    for name in names:
        if name not in exist:
            raise RequestError(name, f"is no {what}{_advice(name, exist, hints)}")


def _advice(name: str, known: list[str], hints: Mapping[str, str]) -> str:
    """How to say it here, with what leads up to it; the whole list if nobody can tell."""
    hint = hints.get(name) or hints.get(name.lower().replace("-", "_"))
    if hint is not None:
        return f" here; use {hint}" if hint in known else f" here: {hint}"
    close = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


class Parameters:
    """Base of a dataclass whose constructor refuses unknown names in one line.

    A dataclass raises TypeError for a name that it does not have. This runs before.
    """

    #: What one of its fields is called in a message.
    WHAT: ClassVar[str]
    #: Names that other software uses, and what to write instead.
    HINTS: ClassVar[Mapping[str, str]]

    def __new__(cls, *values: object, **named: object) -> Self:
        """Check names; values are the dataclass's own business.

        Raises:
            RequestError: a name is unknown, or there are more values than fields.
        """
        self: Any = object.__new__(cls)
        known = [field.name for field in fields(self)]
        refuse_unknown(named, known, cls.HINTS, cls.WHAT)
        if len(values) > len(known):
            raise RequestError(known[-1], f"is the last {cls.WHAT}; {len(values)} values are given")
        twice = [name for name in known[: len(values)] if name in named]
        if twice:
            raise RequestError(twice[0], "is given twice")
        made: Self = self
        return made
