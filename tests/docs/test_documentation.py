"""What the documentation names exists, and has the value that it gives."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
SOURCE = ROOT / "src" / "outrider"
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


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


def constants_script() -> dict[str, Any]:
    """What ``scripts/constants`` defines."""
    return runpy.run_path(str(ROOT / "scripts" / "constants"))


def test_the_page_of_constants_says_what_the_code_says() -> None:
    page = (ROOT / "docs" / "constants.md").read_text(encoding="utf-8")
    assert page == constants_script()["page"](), "scripts/constants > docs/constants.md"


def test_numbers_without_a_comment_are_not_documented() -> None:
    text = "#: Why.\nA: Final = 1\nB: Final = 2.5\n\nC: Final = 3\n#: Text.\nD: Final = 'x'\n"
    assert list(constants_script()["blocks"](text)) == [([("A", "1"), ("B", "2.5")], "Why.")]


def test_every_number_of_the_draft_length_policy_says_where_it_came_from() -> None:
    blocks = constants_script()["blocks"]
    for path in sorted((SOURCE / "draft_length").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        explained = {name for numbers, _ in blocks(text) for name, _ in numbers}
        assert set(re.findall(r"^(_?[A-Z][A-Z_]+): Final\S* = [\d(]", text, re.M)) <= explained
