"""Templates as text, one a line."""

from __future__ import annotations


def template_lines(text: str) -> tuple[str, ...]:
    """The lines of a text; "|" stands for a line break within one."""
    return tuple(line.replace("|", "\n") for line in text.splitlines() if line)
