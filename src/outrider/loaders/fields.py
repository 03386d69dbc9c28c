"""Typed access to the fields of a JSON object or a metadata table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar, overload

from outrider.loaders.files import require_file
from outrider.types.errors import ModelError

D = TypeVar("D")
T = TypeVar("T")

SHOWN_CHARACTERS: Final = 80


class _Required(Enum):
    """The default of a field that has none."""

    REQUIRED = 0


REQUIRED: Final = _Required.REQUIRED


def show(value: object) -> str:
    """Return ``value`` for a message: one line, at most about 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _is_list_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(test(item) for item in value)


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


class Fields:
    """The fields of one object, read by name and expected type.

    A field whose value is null counts as missing. Every reader returns ``default`` for a missing
    field, raises ModelError if there is no default, and raises ModelError for a value of another
    type: one line that names the source, the field, its value and the expected type.

    Attributes:
        source: the file that holds the object, for messages.
    """

    def __init__(self, source: str, values: Mapping[str, object], prefix: str = "") -> None:
        """``prefix`` is the dotted path of this object inside the file, with its final dot."""
        self.source = source
        self._values = values
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"Fields({self.source!r}, {len(self._values)} fields, {self._prefix!r})"

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def names(self) -> Set[str]:
        """Names of all fields, null ones included, in the order of the file."""
        return self._values.keys()

    def differs(self, other: Fields) -> bool:
        """Whether the two objects hold different fields."""
        return self._values != other._values

    def value(self, name: str) -> object:
        """The field as it was parsed; None if it is missing."""
        return self._values.get(name)

    def error(self, name: str, expected: str) -> ModelError:
        """Return the error for a field with a value that is not ``expected``."""
        path = f"{self.source}: field {self._prefix}{name}"
        if not self.has(name):
            return ModelError(f"{path} is missing; it must be {expected}")
        return ModelError(f"{path} must be {expected}, not {show(self._values[name])}")

    def _read(
        self,
        name: str,
        default: D | _Required,
        expected: str,
        test: Callable[[object], bool],
        convert: Callable[[object], T],
    ) -> T | D:
        """Return the converted value if ``test`` accepts it, or the default if it is missing."""
        value = self._values.get(name)
        if value is None:
            if isinstance(default, _Required):
                raise self.error(name, expected)
            return default
        if not test(value):
            raise self.error(name, expected)
        return convert(value)

    @overload
    def integer(self, name: str, *, low: int | None = None, high: int | None = None) -> int: ...
    @overload
    def integer(
        self, name: str, default: D, *, low: int | None = None, high: int | None = None
    ) -> int | D: ...
    def integer(
        self,
        name: str,
        default: D | _Required = REQUIRED,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> int | D:
        """Read an integer within the bounds that are given. A boolean is not an integer."""

        def typed(value: object) -> bool:
            return isinstance(value, int) and _is_integer(value) and (low is None or value >= low)

        def fits(value: object) -> bool:
            return typed(value) and (high is None or _as_int(value) <= high)

        expected = "an integer" if low is None else f"an integer of at least {low}"
        if high is not None and typed(self._values.get(name)):
            expected += f" and at most {high}"
        return self._read(name, default, expected, fits, _as_int)

    @overload
    def number(
        self, name: str, *, above: float | None = None, high: float | None = None
    ) -> float: ...
    @overload
    def number(
        self, name: str, default: D, *, above: float | None = None, high: float | None = None
    ) -> float | D: ...
    def number(
        self,
        name: str,
        default: D | _Required = REQUIRED,
        *,
        above: float | None = None,
        high: float | None = None,
    ) -> float | D:
        """Read a finite number, greater than ``above`` and at most ``high`` if those are given."""

        def typed(value: object) -> bool:
            return _is_number(value) and (above is None or _as_float(value) > above)

        def fits(value: object) -> bool:
            return typed(value) and (high is None or _as_float(value) <= high)

        expected = "a finite number" if above is None else f"a finite number above {above:g}"
        if high is not None and typed(self._values.get(name)):
            expected += f" and at most {high:g}"
        return self._read(name, default, expected, fits, _as_float)

    @overload
    def boolean(self, name: str) -> bool: ...
    @overload
    def boolean(self, name: str, default: D) -> bool | D: ...
    def boolean(self, name: str, default: D | _Required = REQUIRED) -> bool | D:
        """Read true or false."""
        return self._read(name, default, "true or false", _is_boolean, bool)

    @overload
    def string(self, name: str) -> str: ...
    @overload
    def string(self, name: str, default: D) -> str | D: ...
    def string(self, name: str, default: D | _Required = REQUIRED) -> str | D:
        """Read a string."""
        return self._read(name, default, "a string", _is_string, str)

    @overload
    def choice(self, name: str, options: Iterable[str]) -> str: ...
    @overload
    def choice(self, name: str, options: Iterable[str], default: D) -> str | D: ...
    def choice(
        self, name: str, options: Iterable[str], default: D | _Required = REQUIRED
    ) -> str | D:
        """Read a string that must be one of ``options``."""
        allowed = tuple(options)
        expected = "one of " + ", ".join(allowed)
        return self._read(name, default, expected, lambda value: value in allowed, str)

    @overload
    def integers(self, name: str) -> tuple[int, ...]: ...
    @overload
    def integers(self, name: str, default: D) -> tuple[int, ...] | D: ...
    def integers(self, name: str, default: D | _Required = REQUIRED) -> tuple[int, ...] | D:
        """Read a list of integers."""
        return self._read(name, default, "a list of integers", _is_list_of(_is_integer), _ints)

    @overload
    def numbers(self, name: str) -> tuple[float, ...]: ...
    @overload
    def numbers(self, name: str, default: D) -> tuple[float, ...] | D: ...
    def numbers(self, name: str, default: D | _Required = REQUIRED) -> tuple[float, ...] | D:
        """Read a list of finite numbers."""
        return self._read(name, default, "a list of numbers", _is_list_of(_is_number), _floats)

    @overload
    def strings(self, name: str) -> tuple[str, ...]: ...
    @overload
    def strings(self, name: str, default: D) -> tuple[str, ...] | D: ...
    def strings(self, name: str, default: D | _Required = REQUIRED) -> tuple[str, ...] | D:
        """Read a list of strings."""
        return self._read(name, default, "a list of strings", _is_list_of(_is_string), _strs)

    def sub(self, name: str) -> Fields:
        """Read a nested object; a missing one is an object without fields."""
        value = self._values.get(name)
        if value is None:
            return Fields(self.source, {}, f"{self._prefix}{name}.")
        if not isinstance(value, Mapping):
            raise self.error(name, "an object")
        return Fields(self.source, value, f"{self._prefix}{name}.")


def _as_int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return int(value)


def _as_float(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _items(value: object) -> Iterable[object]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list")
    return value


def _ints(value: object) -> tuple[int, ...]:
    return tuple(_as_int(item) for item in _items(value))


def _floats(value: object) -> tuple[float, ...]:
    return tuple(_as_float(item) for item in _items(value))


def _strs(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in _items(value))


def read_json(path: Path) -> Fields:
    """Read the JSON object in ``path``.

    Raises:
        ModelError: the file is missing, unreadable, no file at all, not JSON, or not an object.
    """
    require_file(path)
    try:
        parsed = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        detail = " ".join(str(error).split())
        raise ModelError(f"{path}: not valid JSON: {detail}") from None
    if not isinstance(parsed, dict):
        raise ModelError(f"{path}: must hold a JSON object, not {show(parsed)}")
    return Fields(str(path), parsed)
