"""The faults that scripts/mutate plants, and that planting one is seen and leaves no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mutation.faults import Fault, faults_of
from mutation.settings import Settings

SOURCE = '''\
"""A module."""

LIMIT = 3


def within(first: int, last: int, strict: bool = True) -> int:
    """The words of a message are no behaviour."""
    total = 0
    for value in range(first, last):
        if not strict and value == 2:
            continue
        total += min(value, LIMIT)
    if total > 9:
        raise ValueError(f"{total + 1} are too many")
    return -total if strict else total
'''
CHANGES = {
    ("", "LIMIT = 3 -> LIMIT = 4"),
    ("", "LIMIT = 3 -> LIMIT = 2"),
    (
        "within",
        "first: int, last: int, strict: bool=True -> first: int, last: int, strict: bool=False",
    ),
    ("within", "total = 0 -> total = 1"),
    ("within", "total = 0 -> total = -1"),
    ("within", "range(first, last) -> range(last, first)"),
    ("within", "not strict and value == 2 -> not strict or value == 2"),
    ("within", "not strict and value == 2 -> not (not strict and value == 2)"),
    ("within", "not strict -> strict"),
    ("within", "value == 2 -> value != 2"),
    ("within", "value == 2 -> value == 3"),
    ("within", "value == 2 -> value == 1"),
    ("within", "continue -> pass"),
    ("within", "total += min(value, LIMIT) -> pass"),
    ("within", "total += min(value, LIMIT) -> total -= min(value, LIMIT)"),
    ("within", "min(value, LIMIT) -> max(value, LIMIT)"),
    ("within", "total > 9 -> total >= 9"),
    ("within", "total > 9 -> total < 9"),
    ("within", "total > 9 -> not total > 9"),
    ("within", "total > 9 -> total > 10"),
    ("within", "total > 9 -> total > 8"),
    ("within", "raise ValueError(f'{total + 1} are too many') -> pass"),
    ("within", "-total if strict else total -> -total if not strict else total"),
    ("within", "-total -> total"),
}


@pytest.fixture
def planted(tmp_path: Path) -> list[Fault]:
    path = tmp_path / "toy.py"
    path.write_text(SOURCE)
    return faults_of("toy", path)


def test_each_change_is_planted_once(planted: list[Fault]) -> None:
    found = [(fault.function, fault.change) for fault in planted]
    assert set(found) == CHANGES
    assert len(found) == len(CHANGES)


def test_a_fault_is_one_change_of_code_that_runs(planted: list[Fault]) -> None:
    for fault in planted:
        compile(fault.source, "toy.py", "exec")
        before, after = SOURCE.splitlines(), fault.source.splitlines()
        differing = [number for number, pair in enumerate(zip(before, after, strict=True), 1)
                     if pair[0] != pair[1]]  # fmt: skip
        assert differing == [fault.line]


def test_equal_changes_are_told_apart_and_lines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "toy.py"
    path.write_text("def f(a, b):\n    return a < b or a < b\n")
    before = [fault.key for fault in faults_of("toy", path)]
    assert [key[3] for key in before if key[2] == "a < b -> a <= b"] == [1, 2]
    path.write_text("\n# more\n" + path.read_text())
    assert [fault.key for fault in faults_of("toy", path)] == before


def test_an_equivalent_needs_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    entry = '[[equivalent]]\nmodule = "a"\nfunction = "f"\nchange = "x -> y"\nreason = "{}"\n'
    path.write_text("room = []\n" + entry.format("because"))
    assert Settings.read(path).equivalents == {("a", "f", "x -> y", 1): "because"}
    for wrong in (entry.format(" "), 2 * entry.format("because")):
        path.write_text("room = []\n" + wrong)
        with pytest.raises(ValueError, match="without a reason"):
            Settings.read(path)


TRIAL = """\
import sys
from pathlib import Path
from mutation.faults import faults_of
from mutation.trial import run_trial
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
for fault in [None, *faults_of("toy", folder / "toy.py")]:
    outcome = run_trial(fault, [str(folder / "test_toy.py")], 30.0, folder / "log")
    print(None if fault is None else fault.change, outcome.result, outcome.by.split("::")[-1])
"""


def test_a_trial_says_what_a_test_notices_and_touches_no_file(tmp_path: Path) -> None:
    source = "def larger(a, b):\n    return a if a > b else b\n"
    (tmp_path / "toy.py").write_text(source)
    (tmp_path / "test_toy.py").write_text(
        "import toy\n\n\ndef test_it():\n    assert toy.larger(1, 2) == 2\n"
    )
    before = sorted(path.name for path in tmp_path.iterdir())
    ran = subprocess.run(
        [sys.executable, "-c", TRIAL, str(tmp_path)],
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [
        "None survived ",
        "a if a > b else b -> a if not a > b else b killed test_it",
        "a > b -> a >= b survived ",
        "a > b -> a < b killed test_it",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*before[:0], "log", *before]
    assert (tmp_path / "toy.py").read_text() == source
