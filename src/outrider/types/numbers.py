"""Numbers that a user hands over, checked by name and turned into Python's own.

Every integer and real type counts (numpy's among them), a boolean never does.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

from outrider.types.errors import RequestError
from outrider.types.lines import shown


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int.

    Raises:
        RequestError: it is no integer, or outside [low, high]; None for ``high`` is no bound.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise RequestError(name, f"must be an integer, not {shown(value)}")
    number = int(value)
    if high is None and number < low:
        raise RequestError(name, f"must be at least {low}, not {shown(number)}")
    if high is not None and not low <= number <= high:
        raise RequestError(name, f"must be in [{low}, {high}], not {shown(number)}")
    return number


def number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> float:
    """Return ``value`` as a float.

    Raises:
        RequestError: it is no finite number in [low, high], or in (low, high] if ``open_low``.
    """
    bracket = "(" if open_low else "["
    found = _finite(value)
    if found is None:
        raise RequestError(
            name, f"must be a number in {bracket}{low:g}, {high:g}], not {shown(value)}"
        )
    if not low <= found <= high or (open_low and found == low):
        raise RequestError(name, f"must be in {bracket}{low:g}, {high:g}], not {shown(value)}")
    return found


def boolean(name: str, value: object) -> bool:
    """Return ``value`` if it is true or false.

    Raises:
        RequestError: it is anything else.
    """
    if not isinstance(value, bool):
        raise RequestError(name, f"must be true or false, not {shown(value)}")
    return value


def _finite(value: object) -> float | None:
    """A finite real number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer beyond every float
        return None
    return found if math.isfinite(found) else None
