"""What ``LLM`` is given besides the engine's options, checked by name before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Final

from outrider.config.engine import EngineConfig
from outrider.types.errors import RequestError
from outrider.types.lines import shown
from outrider.types.names import refuse_unknown
from outrider.types.numbers import integer
from outrider.types.sampling import SamplingParams
from outrider.types.synonyms import CALLS, OPTIONS

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


def check_call(
    call: str, known: Sequence[str], unnamed: Sequence[object], unknown: Iterable[str]
) -> None:
    """Refuse arguments that a call does not have.

    Args:
        call: the method.
        known: the arguments it has, in order.
        unnamed: what was given without a name beyond those.
        unknown: names that were given besides.

    Raises:
        RequestError: it names the argument and what would be right.
    """
    check_count(unnamed, known, f"LLM.{call}")
    refuse_unknown(unknown, known, CALLS[call], f"argument of LLM.{call}")


def check_count(unnamed: Sequence[object], known: Sequence[str], call: str) -> None:
    """Refuse arguments without a name beyond those that a call takes.

    Args:
        unnamed: those beyond.
        known: those it takes, in order.
        call: what the user called, as in "LLM.chat".

    Raises:
        RequestError: there is one.
    """
    if unnamed:
        alone = "alone " if len(known) == 1 else ""
        raise RequestError(
            call,
            f"takes {', '.join(known)} {alone}without a name; write name=value for "
            f"{shown(unnamed[0])}",
        )


def check_progress(progress: object) -> None:
    """Refuse what cannot be told about progress.

    Raises:
        RequestError: it is not a function.
    """
    if not callable(progress):
        raise RequestError(
            "progress", f"must be a function of (label, done, total), not {shown(progress)}"
        )


def params_of(params: object, count: int) -> list[SamplingParams]:
    """Sampling parameters of each of ``count`` requests; None stands for the defaults.

    Raises:
        RequestError: they are anything else, or not as many as requests.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    many: list[SamplingParams] = []
    for one in params if isinstance(params, list | tuple) else [params]:
        if not isinstance(one, SamplingParams):
            raise RequestError(
                "params",
                "must be SamplingParams(...), one for all or a list of one per prompt, not "
                f"{shown(one)}",
            )
        many.append(one)
    if len(many) != count:
        raise RequestError("params", f"{len(many)} of them for {count} prompts")
    return many


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
        RequestError: it is neither, or empty.
    """
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise RequestError(name, f"must be text or a path, such as {example}, not {shown(value)}")
    if not path.strip():
        raise RequestError(name, f"is empty; give a name or a path, such as {example}")
    return path


def thread_count(value: object) -> int | None:
    """Return a number of threads, None for one a core.

    Raises:
        RequestError: it is no integer of at least 1.
    """
    return None if value is None else integer("threads", value, 1, MAX_THREADS)
