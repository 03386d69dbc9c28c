"""The rooms of the C++ sources: includes go one way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
#: Lowest first, as native/README.md lists them; engine.h composes all before it.
ROOMS = (
    "memory",
    "threads",
    "weights",
    "cache",
    "paths",
    "products",
    "attention",
    "decoder",
    "drafting",
    "engine.h",
    "bindings",
)


def upward(sources):
    """Every include of a file that is in a room above, as (file, included)."""
    return [
        (name, included)
        for name, text in sources.items()
        for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
        if ROOMS.index(included.split("/")[0]) > ROOMS.index(name.split("/")[0])
    ]


@pytest.fixture(scope="module")
def sources():
    files = [p for p in NATIVE.rglob("*") if p.suffix in (".h", ".cpp")]
    if not files:
        pytest.skip("no sources beside the tests")
    return {p.relative_to(NATIVE).as_posix(): p.read_text() for p in files}


def test_includes_go_down(sources):
    assert len(sources) > 40
    assert upward(sources) == []


def test_an_include_upwards_is_seen():
    text = '#include <vector>\n#include "memory/buffer.h"\n#include "decoder/stack.h"\n'
    assert upward({"products/head.h": text}) == [("products/head.h", "decoder/stack.h")]


def test_the_readme_lists_the_rooms(sources):
    listed = re.findall(r"^\| `(\w+)/` \|", (NATIVE / "README.md").read_text(), re.MULTILINE)
    assert listed == [room for room in ROOMS if room != "engine.h"]
    assert {name.split("/")[0] for name in sources} == set(ROOMS)
