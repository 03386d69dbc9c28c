"""``bench`` and its prompts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.bench import geometric_mean
from outrider.cli.prompts import CATEGORIES, builtin_prompts, limit_prompts

ROW = {
    "drafter",
    "category",
    "concurrency",
    "tokens_per_s",
    "ttft_s",
    "tpot_ms",
    "acceptance_length",
    "speedup",
    "byte_equal",
}


def test_builtin_prompts_cover_the_categories() -> None:
    prompts = builtin_prompts()
    counts = Counter(prompt.category for prompt in prompts)
    assert set(counts) == set(CATEGORIES)
    assert min(counts.values()) >= 16
    assert len(prompts) >= 96
    assert len({prompt.messages[-1]["content"] for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        roles = [message["role"] for message in prompt.messages]
        assert roles in (["user"], ["user", "assistant", "user"])
        assert all(message["content"].strip() for message in prompt.messages)


def test_every_category_has_two_turn_prompts_even_if_limited() -> None:
    for limit, least in ((None, 2), (8, 1)):
        for group in limit_prompts(builtin_prompts(), limit).values():
            assert sum(len(prompt.messages) == 3 for prompt in group) >= least


def test_rows_have_the_documented_shape(outrider: Any, tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    turns = [{"role": r, "content": "ab" * 9} for r in ("user", "assistant", "user")]
    lines = [
        {"category": "copy", "prompt": "abcabcabcabc"},
        {"category": "copy", "messages": turns},
        {"category": "other", "prompt": "xyz"},
        {"category": "other", "prompt": "never measured"},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    arguments = ("--model", tiny, "--prompts", path, "--max-tokens", "8", "--temperature", "0.7")
    ended = outrider(
        "bench", *arguments, "-d", "ngram", "-c", "1", "-c", "2", "--limit", "2", "--json"
    )
    assert ended.status == 0
    rows = ended.json()
    assert all(set(row) == ROW for row in rows)
    places = {(row["drafter"], row["category"], row["concurrency"]) for row in rows}
    assert len(places) == len(rows) == 2 * 2 * 2
    for row in rows:
        assert row["byte_equal"] is True
        assert row["tokens_per_s"] > 0
        assert row["ttft_s"] > 0
        assert row["speedup"] == 1.0 or row["drafter"] == "ngram"


def test_the_table_has_totals(outrider: Any, tiny: str) -> None:
    ended = outrider("bench", "--model", tiny, "--limit", "1", "--max-tokens", "4")
    assert ended.status == 0
    assert ended.out.count("extraction") == 2
    assert "geometric mean" in ended.out
    assert "NO" not in ended.out.replace("NONE", "")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "JSON object"),
        ('{"category": "a"}', "prompt"),
        ('{"category": 3, "prompt": "x"}', "category"),
        ('{"prompt": "x", "messages": []}', "either"),
        ('{"messages": [{"role": "user"}]}', "content"),
        ("", "no prompt"),
    ],
)
def test_a_bad_prompt_file_is_refused(outrider: Any, tmp_path: Path, line: str, named: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n")
    ended = outrider("bench", "--prompts", path)
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert named in ended.err


def test_the_plot_is_written(outrider: Any, tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "speed.png"
    ended = outrider("bench", "--model", tiny, "--limit", "1", "--max-tokens", "4", "--plot", path)
    assert ended.status == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("plot", ["/nonexistent/speed.png", "speed.png"])
def test_a_plot_that_cannot_be_drawn_is_refused_at_once(
    outrider: Any, monkeypatch: pytest.MonkeyPatch, plot: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = outrider("bench", "--model", "/nonexistent", "--plot", plot)
    assert ended.status == 2
    assert ended.err.startswith("outrider: --plot: ")
    assert ended.err.count("\n") == 1


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) == 0.0
    assert geometric_mean([0.0, 2.0]) == 0.0
