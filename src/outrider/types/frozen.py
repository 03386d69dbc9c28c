"""A dict that cannot change once it is made."""

from __future__ import annotations

from typing import NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict without any way to change it; it can be hashed, copied and pickled."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("it cannot be changed; make a new one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return FrozenDict, (dict(self),)
