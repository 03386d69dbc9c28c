"""What ``LLM`` is given besides the engine's options, checked by name before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from outrider.config.engine import EngineConfig
from outrider.types.errors import RequestError
from outrider.types.names import refuse_unknown
from outrider.types.numbers import integer, shown
from outrider.types.synonyms import OPTIONS

#: Most threads: more than any machine has cores.
MAX_THREADS: Final = 1 << 16
#: Arguments that are not the engine's.
OWN: Final = ("model", "drafter", "device", "threads", "kernels", "progress")
ENGINE: Final = tuple(field.name for field in fields(EngineConfig))


def check_options(options: Iterable[str]) -> None:
    """Refuse names that ``LLM`` does not have.

    Raises:
        RequestError: it names the option and what would be right.
    """
    refuse_unknown(options, (*OWN, *ENGINE), OPTIONS, "option of LLM")


def check_variant(options: Iterable[str]) -> None:
    """Refuse names that ``LLM.variant`` does not have; what was loaded stays as it is.

    Raises:
        RequestError: it names the option and what would be right.
    """
    names = list(options)
    loaded = next((name for name in names if name in OWN), None)
    if loaded is not None:
        raise RequestError(loaded, "belongs to the loaded model; make another LLM for it")
    refuse_unknown(names, ("drafter", *ENGINE), OPTIONS, "option of LLM.variant")


def text(name: str, value: object, example: str) -> str:
    """Return a string.

    Raises:
        RequestError: it is anything else.
    """
    if not isinstance(value, str):
        raise RequestError(name, f"must be text, such as {example}, not {shown(value)}")
    return value


def place(name: str, value: object, example: str) -> str:
    """Return a name or a path as text; what names a path (pathlib's, for one) counts.

    Raises:
        RequestError: it is neither.
    """
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise RequestError(name, f"must be text or a path, such as {example}, not {shown(value)}")
    return path


def thread_count(value: object) -> int | None:
    """Return a number of threads, None for one a core.

    Raises:
        RequestError: it is no integer of at least 1.
    """
    return None if value is None else integer("threads", value, 1, MAX_THREADS)
