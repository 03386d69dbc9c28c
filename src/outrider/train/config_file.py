"""A configuration as a file: JSON, checked when it is read, with comments for a user to edit."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from outrider.loaders.files import require_file
from outrider.train.config import TrainConfig
from outrider.train.ranges import check_ranges
from outrider.types.errors import DrafterError

T = TypeVar("T")
#: Fields of a JSON file that begin with this are comments.
COMMENT: Final = "//"


def load_config(path: Path) -> TrainConfig:
    """Read a configuration; fields that are left out keep their defaults, comments are skipped.

    Raises:
        DrafterError: it is not a JSON object, has an unknown field, or a value of a wrong type or
            out of its range.
    """
    require_file(path, DrafterError)
    try:
        parsed = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DrafterError(f"{path}: {' '.join(str(error).split())}") from None
    config = _build(TrainConfig, parsed, str(path))
    check_ranges(config, f"{path}: ")
    return config


def _build(cls: type[T], values: object, where: str) -> T:
    """Build a configuration dataclass from parsed JSON, checking names and types."""
    if not isinstance(values, Mapping):
        raise DrafterError(f"{where}: must be a JSON object, not {values!r}")
    hints = typing.get_type_hints(cls)
    values = {name: value for name, value in values.items() if not name.startswith(COMMENT)}
    known = set(hints)
    unknown = sorted(set(values) - known)
    if unknown:
        raise DrafterError(f"{where}: unknown field {unknown[0]!r}")
    arguments: dict[str, object] = {}
    for name, value in values.items():
        arguments[name] = _value(hints[name], value, f"{where}: {name}")
    return cls(**arguments)


def _value(hint: Any, value: object, where: str) -> object:  # noqa: ANN401 - an annotation
    """Check one field against its annotation."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _build(hint, value, where)
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            options = ", ".join(map(repr, typing.get_args(hint)))
            raise DrafterError(f"{where}: must be one of {options}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple) or not all(type(v) is int for v in value):
            raise DrafterError(f"{where}: must be a list of integers, not {value!r}")
        return tuple(value)
    accepted: type | types.UnionType = int | float if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise DrafterError(f"{where}: must be {hint.__name__}, not {value!r}")
    if hint is not float or not isinstance(value, int | float):
        return value
    try:
        return float(value)
    except OverflowError:
        raise DrafterError(f"{where}: must be a number that float can hold") from None


def documented(config: TrainConfig) -> str:
    """As ``TrainConfig.to_json``, with a comment before every field: what it means."""
    return json.dumps(_documented(config), indent=2) + "\n"


def _documented(config: Any) -> dict[str, object]:  # noqa: ANN401 - any of the dataclasses
    """The fields of a configuration, each after its comment."""
    meanings = _meanings(type(config))
    values: dict[str, object] = {}
    for field_ in dataclasses.fields(config):
        value = getattr(config, field_.name)
        if field_.name in meanings:
            values[COMMENT + field_.name] = meanings[field_.name]
        values[field_.name] = _documented(value) if dataclasses.is_dataclass(value) else value
    return values


def _meanings(cls: type[Any]) -> dict[str, str]:
    """What each field means, from the attributes that the class describes."""
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2].splitlines():
        text = line.strip()
        if line.startswith(" " * 4) and not line.startswith(" " * 5):
            before, _, text = text.partition(": ")
            names = before.split(", ")
        for name in names:
            meanings[name] = f"{meanings.get(name, '')} {text}".replace("``", "").strip()
    return meanings
