"""What ``dev/mutants.toml`` says: the tests of each room, and the faults that do not count."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.faults import Fault


@dataclass(frozen=True)
class Room:
    """Modules that are tested together.

    Attributes:
        modules: dotted names below the package; a package stands for all that is in it.
        tests: files and folders, quickest to notice first.
        last: what is run after them: engine tests, which notice what no test of the room does.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    last: tuple[str, ...]

    def holds(self, module: str) -> bool:
        """Whether a module belongs here."""
        return any(module == name or module.startswith(f"{name}.") for name in self.modules)


@dataclass(frozen=True)
class Settings:
    """The file, read.

    Attributes:
        rooms: in order; the first that holds a module says its tests.
        equivalents: keys of faults that change nothing a test should see, with the reason.
    """

    rooms: tuple[Room, ...]
    equivalents: dict[tuple[str, str, str, int], str]

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read the file.

        Raises:
            ValueError: an equivalent has no reason, or is listed twice.
        """
        content = tomllib.loads(path.read_text())
        rooms = tuple(
            Room(tuple(entry["modules"]), tuple(entry["tests"]), tuple(entry.get("last", ())))
            for entry in content["room"]
        )
        equivalents: dict[tuple[str, str, str, int], str] = {}
        for entry in content.get("equivalent", ()):
            key = _key(entry)
            if key in equivalents or not entry["reason"].strip():
                raise ValueError(f"{path}: {key} is listed twice or without a reason")
            equivalents[key] = entry["reason"]
        return cls(rooms, equivalents)

    def room_of(self, module: str) -> Room | None:
        """The room of a module, None if no room holds it."""
        return next((room for room in self.rooms if room.holds(module)), None)

    def unknown(self, faults: list[Fault], modules: set[str]) -> list[tuple[str, str, str, int]]:
        """Equivalents of some modules that can no longer be planted."""
        planted = {fault.key for fault in faults}
        return [key for key in self.equivalents if key[0] in modules and key not in planted]


def _key(entry: dict[str, Any]) -> tuple[str, str, str, int]:
    return entry["module"], entry["function"], entry["change"], entry.get("number", 1)
