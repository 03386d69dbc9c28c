"""Tables that stay readable: whole, with folded headings, or a record per row on narrow screens."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from outrider.cli.console import write

if TYPE_CHECKING:
    from rich.table import Table

#: Longer names lose their folders.
NAME_CHARS: Final = 20


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """What tables call drafters: long paths by their last part, by more parts if they are alike."""
    spelled = list(dict.fromkeys(names))
    short = {name: name for name in spelled}
    for name in spelled:
        parts = name.rstrip("/").split("/")
        if len(name) <= NAME_CHARS or len(parts) < 2:
            continue
        for count in range(1, len(parts) + 1):
            tail = "/".join(parts[-count:])
            rivals = (other.rstrip("/") for other in spelled if other != name)
            if tail and not any(other == tail or other.endswith(f"/{tail}") for other in rivals):
                short[name] = tail
                break
    return short


def write_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Put a table on standard output; figures are flush right.

    A terminal gets the widest form that fits it and no cell is ever cut; a pipe gets whole lines.
    """
    from rich.console import Console

    cells = [list(row) for row in rows]
    width = Console().width if sys.stdout.isatty() else None
    write(f"{title}\n{_layout(columns, cells, width)}\n")


def _layout(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """The text of a table in at most ``width`` columns; None has no limit."""
    from rich.cells import cell_len

    folded = [_folded(name) for name in columns]
    lines = _drawn(_table(columns, rows, 1))
    if width is None:
        return "\n".join(lines) + "\n"
    for names, gap in ((folded, 1), (folded, 0)):
        if max(map(cell_len, lines)) <= width:
            break
        lines = _drawn(_table(names, rows, gap))
    if max(map(cell_len, lines)) <= width:
        return "\n".join(lines) + "\n"
    return _records(columns, rows, width)


def _drawn(table: Table) -> list[str]:
    """The lines of a table as wide as it likes to be."""
    from rich.console import Console

    # Drawn apart, so that all output takes one way to its stream.
    screen = Console(width=100_000, markup=False, highlight=False, emoji=False, color_system=None)
    with screen.capture() as captured:
        screen.print(table)
    return [line.rstrip() for line in captured.get().split("\n") if line.strip()]


def _folded(name: str) -> str:
    """A heading in several lines: a word in each, broken after a slash too."""
    return name.replace("/", "/ ").replace(" ", "\n")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> Table:
    """A table with ``1 + 2 * gap`` spaces between its columns."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap))
    for index, column in enumerate(columns):
        figures = all(row[index][:1].isdigit() or row[index] == "-" for row in rows)
        table.add_column(
            column, justify="right" if figures else "left", no_wrap=True, vertical="bottom"
        )
    for row in rows:
        table.add_row(*row)
    return table


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """One block a row: names on the left, values on the right, long ones folded."""
    from textwrap import wrap

    edge = max(map(len, columns)) + 2
    lines: list[str] = []
    for row in rows:
        lines.append("")
        for column, value in zip(columns, row, strict=True):
            folded = wrap(value, max(width - edge, 8)) or [""]
            lines += [
                f"{name:<{edge}}{part}".rstrip()
                for name, part in zip([column, *[""] * (len(folded) - 1)], folded, strict=True)
            ]
    return "\n".join(lines) + "\n"
