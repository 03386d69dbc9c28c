"""How much memory this process can still have."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where each version of control groups keeps a limit, what counts against it, and the line of
#: memory.stat about files that are only cached: those can go.
_GROUP_FILES: Final = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


@dataclass(frozen=True)
class Memory:
    """Bytes of memory.

    Attributes:
        total: what this process could have if it were alone.
        free: what it can still have without taking pages from anyone.
    """

    total: int
    free: int

    @classmethod
    def read(cls, root: Path = Path("/")) -> Memory:
        """Ask the machine, the control group of this process, and its own limits.

        Args:
            root: the folder with ``proc`` and ``sys``.
        """
        total, free = _machine(root / "proc/meminfo")
        for limit, used in (*_groups(root), _address_space(root)):
            total, free = min(total, limit), min(free, max(limit - used, 0))
        return cls(total, free)


def _machine(path: Path) -> tuple[int, int]:
    """Bytes that the machine has, and that programs can still have."""
    found = {name: count << 10 for name, count in _fields(path).items()}
    total = found.get("MemTotal:", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return total, found.get("MemAvailable:", total)


def _groups(root: Path) -> list[tuple[int, int]]:
    """Limit and use of every control group that this process is in, parents included."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, own = (*line.split(":", 2), "", "")[:3]
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        folder, limit, used, cached = _GROUP_FILES[1 if controllers else 0]
        place = root / folder / own.strip("/")
        # A container often sees its own group as the root, whatever its path says.
        for group in {root / folder, place, *place.parents}:
            if group.is_relative_to(root / folder):
                taken = _count(group / used)
                kept = _fields(group / "memory.stat").get(cached, 0)
                found.append((_count(group / limit), None if taken is None else taken - kept))
    return [(limit, used) for limit, used in found if limit is not None and used is not None]


def _address_space(root: Path) -> tuple[int, int]:
    """The bound of ``ulimit -v``, and what is mapped already."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _text(root / "proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not pages:
        return 1 << 63, 0
    return limit, int(pages[0]) * os.sysconf("SC_PAGE_SIZE")


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file by the word that each line begins with."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _count(path: Path) -> int | None:
    """The number in a file; None if there is none, as where the limit is "max"."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
