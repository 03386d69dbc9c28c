"""How long work reports its progress; the command line draws it as a bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the state of one labelled piece of work, any number of times."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """``done`` of ``total`` units are finished; the last call has them equal."""


def silent(label: str, done: int, total: int) -> None:
    """Report nothing."""
