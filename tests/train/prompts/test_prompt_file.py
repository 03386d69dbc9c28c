"""A user's own prompts."""

from __future__ import annotations

from pathlib import Path

from outrider.train.prompts.prompt_file import read_prompts


def test_only_line_feeds_divide_a_file_of_prompts(tmp_path: Path) -> None:
    texts = [f"one{mark}two" for mark in "\u2028\u2029\x85\x0b\x0c\x1c\x1e"]
    path = tmp_path / "prompts.txt"
    path.write_bytes(("\ufeff" + "\r\n\n".join(texts)).encode())
    assert read_prompts(path) == texts
