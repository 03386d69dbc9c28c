"""Tables and names on screens of any width."""

from __future__ import annotations

import io
import os

import pytest

from outrider.cli.bench.command import DRAFT_COLUMNS, SPEED_COLUMNS
from outrider.cli.table import short_names, write_table

SPEED = [
    ["summarising", "smollm2-dspark", "1234.5", "10.25", "0.12", "123.4", "yes"],
    ["all", "none", "9.0", "1.00", "12.30", "1.4", "NO"],
]
DRAFTS = [
    ["summarising", "smollm2-dspark", "10.25", "-", "10 of 96", "100%", "10.25", "100%"],
]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch,
    columns: tuple[str, ...],
    rows: list[list[str]],
    width: int | None,
) -> list[str]:
    """The lines of a table on a terminal of a width, or in a pipe."""
    screen = io.StringIO() if width is None else Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width or 80))
    monkeypatch.setenv("TERM", "xterm")
    write_table("Title", columns, rows)
    lines = screen.getvalue().split("\n")
    assert lines[0] == "Title"
    assert lines[-2:] == ["", ""]
    return lines[1:-2]


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 100, 140, 200])
@pytest.mark.parametrize("kind", ["speed", "drafts"])
def test_nothing_is_cut_on_any_screen(
    monkeypatch: pytest.MonkeyPatch, kind: str, width: int
) -> None:
    columns, rows = (SPEED_COLUMNS, SPEED) if kind == "speed" else (DRAFT_COLUMNS, DRAFTS)
    lines = shown(monkeypatch, columns, rows, width)
    text = "\n".join(lines)
    assert "…" not in text
    assert max(map(len, lines)) <= width
    words = text.split()
    for cell in (cell for row in rows for cell in row):
        assert all(part in words for part in cell.split())
    for heading in columns:
        for word in heading.replace("/", "/ ").split():
            assert word in text


@pytest.mark.parametrize(("kind", "least"), [("speed", 72), ("drafts", 79)])
def test_the_usual_screen_gets_a_table(
    monkeypatch: pytest.MonkeyPatch, kind: str, least: int
) -> None:
    """One line a row, also with the longest of the shipped names."""
    columns, rows = (SPEED_COLUMNS, SPEED) if kind == "speed" else (DRAFT_COLUMNS, DRAFTS)
    for width in (least, 80, 120):
        lines = shown(monkeypatch, columns, rows, width)
        for row in rows:
            assert [line.split() for line in lines if line.split()[0] == row[0]] == [
                " ".join(row).split()
            ]


def test_a_narrow_screen_gets_a_record_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["replay, batched, length by worth", "10", "9"], ["x" * 30, "1", "1"]]
    assert shown(monkeypatch, ("case", "requests", "equal"), rows, 30) == [
        "",
        "case      replay, batched,",
        "          length by worth",
        "requests  10",
        "equal     9",
        "",
        f"case      {'x' * 20}",
        f"          {'x' * 10}",
        "requests  1",
        "equal     1",
    ]


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the width of the terminal that the command runs in."""
    long = "a drafter of a very long name " * 10
    rows = [[long.strip(), "1"], ["b", "20"]]
    lines = shown(monkeypatch, ("name", "count"), rows, None)
    assert lines[0].split() == ["name", "count"]
    assert lines[2].split() == [*long.split(), "1"]
    assert lines[3].split() == ["b", "20"]
    assert len(lines) == 4


def test_figures_are_flush_right_and_words_left(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["a", "none", "1.25", "-"], ["bb", "ngram", "100.50", "3%"]]
    lines = shown(monkeypatch, ("n", "drafter", "speed", "share"), rows, 80)
    assert [line.split() for line in lines[2:]] == rows
    assert lines[2].index("none") == lines[3].index("ngram")
    assert lines[2].index("1.25") + 4 == lines[3].index("100.50") + 6


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["none", "ngram", "smollm2-dspark"], ["none", "ngram", "smollm2-dspark"]),
        (["/a/very/long/path/to/drafter"], ["drafter"]),
        (["/a/very/long/path/to/drafter/"], ["drafter"]),
        (["org/short"], ["org/short"]),
        (["some-organisation/some-drafter"], ["some-drafter"]),
        (
            ["/home/me/runs/one/drafter", "/home/me/runs/two/drafter"],
            ["one/drafter", "two/drafter"],
        ),
        (
            ["/home/me/a/runs/drafter", "/home/me/b/runs/drafter"],
            ["a/runs/drafter", "b/runs/drafter"],
        ),
        (["/home/me/some/where/ngram", "ngram"], ["where/ngram", "ngram"]),
        (["/home/me/some/where/x", "/where/x"], ["some/where/x", "/where/x"]),
        (["a-name-without-any-folder-in-it"], ["a-name-without-any-folder-in-it"]),
    ],
)
def test_long_paths_go_by_their_last_part(names: list[str], short: list[str]) -> None:
    assert [short_names(names)[name] for name in names] == short
    assert len(set(short)) == len(short)


def test_colours_of_the_environment_do_not_reach_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "FORCE_COLOR", "1")
    lines = shown(monkeypatch, SPEED_COLUMNS, SPEED, None)
    assert "\x1b" not in "".join(lines)
