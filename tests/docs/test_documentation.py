"""What the documentation names exists, and has the value that it gives."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
SOURCE = ROOT / "src" / "outrider"
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
CONSTANT = re.compile(r"^\| `([\w.]+)\.(\w+)` \| ([^|]+) \|", re.MULTILINE)


def missing(page: Path) -> list[str]:
    """Paths and links of a page that lead nowhere; paths may be relative to the package."""
    text = page.read_text(encoding="utf-8")
    named = [name for name in PATH.findall(text) if not name.startswith((".venv", "org/name"))]
    lost = [name for name in named if not any((at / name).exists() for at in (ROOT, SOURCE))]
    lost += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    return [name for name in lost if not name.startswith("build/")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_links_lead_somewhere(page: Path) -> None:
    assert missing(page) == []


def test_a_path_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`kernels/table.py`, `kernels/nothing.py`, [a](b.md)", encoding="utf-8")
    assert missing(page) == ["kernels/nothing.py", "b.md"]


def constants() -> list[tuple[str, str, str]]:
    """Module, name and value of every row of the table of constants."""
    return CONSTANT.findall((ROOT / "docs" / "constants.md").read_text(encoding="utf-8"))


def shown(value: Any) -> str:
    """A constant as the table shows it."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("module", "name", "value"), constants(), ids=str)
def test_constants_have_the_values_that_are_documented(module: str, name: str, value: str) -> None:
    assert shown(getattr(importlib.import_module(f"outrider.{module}"), name)) == value.strip()


def test_every_constant_of_the_draft_length_policy_is_documented() -> None:
    documented = {(module, name) for module, name, _ in constants()}
    for path in sorted((SOURCE / "draft_length").glob("*.py")):
        names = re.findall(r"^(_?[A-Z][A-Z_]+): Final", path.read_text(encoding="utf-8"), re.M)
        assert {(f"draft_length.{path.stem}", name) for name in names} <= documented
