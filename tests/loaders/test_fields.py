"""Typed reading of JSON objects, and the one line that each fault becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.loaders.fields import Fields, read_json
from outrider.types.errors import ModelError

VALUES = {
    "i": 3,
    "f": 0.5,
    "b": True,
    "s": "text",
    "is": [1, 2],
    "fs": [1, 2.5],
    "ss": ["a", "b"],
    "o": {"x": 1},
    "null": None,
    "nan": float("nan"),
    "long": "y" * 1000,
}
FIELDS = Fields("c.json", VALUES)


def test_values_come_back_typed() -> None:
    assert FIELDS.integer("i") == 3
    assert FIELDS.number("i") == 3.0
    assert isinstance(FIELDS.number("i"), float)
    assert FIELDS.number("f", above=0.0) == 0.5
    assert FIELDS.boolean("b") is True
    assert FIELDS.string("s") == "text"
    assert FIELDS.choice("s", ("text", "other")) == "text"
    assert FIELDS.integers("is") == (1, 2)
    assert FIELDS.numbers("fs") == (1.0, 2.5)
    assert FIELDS.strings("ss") == ("a", "b")
    assert FIELDS.sub("o").integer("x") == 1
    assert FIELDS.has("i")
    assert "null" in FIELDS.names()


def test_null_and_missing_fields_have_defaults() -> None:
    for name in ("null", "absent"):
        assert not FIELDS.has(name)
        assert FIELDS.integer(name, None) is None
        assert FIELDS.number(name, 2.0) == 2.0
        assert FIELDS.strings(name, ()) == ()
        assert FIELDS.sub(name).integer("x", 7) == 7


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: FIELDS.integer("absent"), "field absent is missing; it must be an integer"),
        (lambda: FIELDS.integer("null"), "field null is missing; it must be an integer"),
        (lambda: FIELDS.integer("b"), "field b must be an integer, not True"),
        (lambda: FIELDS.integer("f"), "field f must be an integer, not 0.5"),
        (lambda: FIELDS.integer("i", low=4), "field i must be an integer of at least 4, not 3"),
        (lambda: FIELDS.number("nan"), "field nan must be a finite number, not nan"),
        (lambda: FIELDS.number("f", above=1), "field f must be a finite number above 1, not 0.5"),
        (lambda: FIELDS.number("b"), "field b must be a finite number, not True"),
        (lambda: FIELDS.boolean("i"), "field i must be true or false, not 3"),
        (lambda: FIELDS.string("i"), "field i must be a string, not 3"),
        (lambda: FIELDS.choice("s", ("a", "b")), "field s must be one of a, b, not 'text'"),
        (lambda: FIELDS.choice("is", ("a",)), "field is must be one of a, not [1, 2]"),
        (lambda: FIELDS.integers("fs"), "field fs must be a list of integers, not [1, 2.5]"),
        (lambda: FIELDS.integers("i"), "field i must be a list of integers, not 3"),
        (lambda: FIELDS.strings("is"), "field is must be a list of strings, not [1, 2]"),
        (lambda: FIELDS.numbers("ss"), "field ss must be a list of numbers, not ['a', 'b']"),
        (lambda: FIELDS.sub("s"), "field s must be an object, not 'text'"),
        (lambda: FIELDS.sub("o").string("x"), "field o.x must be a string, not 1"),
    ],
)
def test_each_fault_is_one_line(read: object, message: str) -> None:
    assert callable(read)
    with pytest.raises(ModelError) as caught:
        read()
    assert str(caught.value) == f"c.json: {message}"


def test_long_values_are_cut() -> None:
    with pytest.raises(ModelError) as caught:
        FIELDS.integer("long")
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "not valid JSON: Expecting value"),
        (b"{'a': 1}", "not valid JSON: Expecting property name"),
        (b"\xff\xfe{", "not valid JSON: "),
        (b"[" * 100_000, "not valid JSON: "),
        (b"[1]", r"must hold a JSON object, not \[1\]"),
    ],
)
def test_files_that_are_not_objects(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=f"{path}: {message}") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must be a file, not a folder"):
        read_json(tmp_path)
