"""``bench`` and its prompts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.bench.measure import BenchRow, BenchTotal
from outrider.cli.bench.prompts import CATEGORIES, builtin_prompts, limit_prompts, read_prompts

ROW = {field.name for field in fields(BenchRow)}
TOTAL = {field.name for field in fields(BenchTotal)}


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
    found = ended.json()
    assert set(found) == {"categories", "all"}
    rows, totals = found["categories"], found["all"]
    assert all(set(row) == ROW for row in rows)
    assert all(set(total) == TOTAL for total in totals)
    places = {(row["drafter"], row["category"], row["concurrency"]) for row in rows}
    assert len(places) == len(rows) == 2 * 2 * 2
    assert [(t["drafter"], t["concurrency"]) for t in totals] == [
        ("none", 1),
        ("ngram", 1),
        ("none", 2),
        ("ngram", 2),
    ]
    for row in rows + totals:
        assert row["byte_equal"] is True
        assert row["tokens_per_s"] > 0
        assert row["ttft_s"] > 0
        assert row["outputs"] == (4 if row["category"] == "all" else 2)
        if row["drafter"] == "none":
            assert (row["speedup"], row["acceptance_length"]) == (1.0, 1.0)
            assert (row["drafted_per_position"], row["drafting_time_share"]) == ([], 0.0)
        else:
            assert 0 < row["drafting_time_share"] < 1


def test_every_round_drafts_the_length_asked_for(outrider: Any, tiny: str, drafter: str) -> None:
    """A random drafter's tokens are cut by worth at once; a fixed length keeps them all."""
    arguments = ("--model", tiny, "--limit", "1", "--max-tokens", "12", "-d", drafter, "--json")
    total = outrider("bench", *arguments, "--draft-length", "2").json()["all"][-1]
    assert total["drafter"] == drafter
    tried = total["drafted_per_position"]
    assert len(tried) == len(total["acceptance_per_position"]) == 2
    # Only the last rounds of an answer have no room for both.
    assert total["drafted_rounds_share"] > 0.8
    assert total["drafted_per_round"] > 1.5
    # The figures agree with each other.
    kept = sum(s * n for s, n in zip(total["acceptance_per_position"], tried, strict=True))
    rounds = tried[0] / total["drafted_rounds_share"]
    assert total["acceptance_length"] == pytest.approx(1 + kept / rounds)
    assert total["drafted_per_round"] == pytest.approx(sum(tried) / rounds)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("-d none --draft-length 4", "--draft-length: there is no drafter"),
        ("-d none --plot speed.png", "--plot: there is no drafter"),
        ("-d ngram --draft-length 31 --max-tokens 32", "raise --max-tokens"),
        ("-d ngram --draft-length 0", "--draft-length"),
        ("-d ngram --plot speed.bmp", "must end in .png, .svg, .pdf"),
    ],
)
def test_options_that_make_no_sense_are_refused(outrider: Any, options: str, named: str) -> None:
    """At once: the model is not even looked for."""
    ended = outrider("bench", "--model", "/nonexistent", *options.split())
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert named in ended.err


def test_longer_drafts_than_the_drafter_can_make_are_refused(
    outrider: Any, tiny: str, drafter: str
) -> None:
    ended = outrider("bench", "--model", tiny, "-d", "ngram", "-d", drafter, "--draft-length", "4")
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert f'--draft-length: 4: "{drafter}" drafts at most 3' in ended.err


def test_the_tables_have_totals(outrider: Any, tiny: str) -> None:
    ended = outrider("bench", "--model", tiny, "--limit", "1", "--max-tokens", "4", "-c", "2")
    assert ended.status == 0
    # Plain and drafted in the first table, drafted alone in the second.
    assert ended.out.count("extraction ") >= 3
    assert "Speed, 2 requests at a time" in ended.out
    assert "Drafting, 2 requests at a time" in ended.out
    for column in ("without loops", "looped", "rounds drafted", "drafted/round", "time drafting"):
        assert column in ended.out
    assert "0 of 6" in ended.out
    assert "times plain speed (geometric mean of the categories); slowest: " in ended.out
    assert "NO" not in ended.out.replace("NONE", "")


def test_plain_decoding_alone_has_no_drafting_table(outrider: Any, tiny: str) -> None:
    ended = outrider("bench", "--model", tiny, "--limit", "1", "--max-tokens", "4", "-d", "none")
    assert ended.status == 0
    assert "Speed, 1 request at a time" in ended.out
    assert "Drafting" not in ended.out


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 1: not valid JSON"),
        ("[]", "JSON object"),
        ('{"category": "a"}', "prompt"),
        ('{"category": 3, "prompt": "x"}', "category"),
        ('{"prompt": "x", "messages": []}', "either"),
        ('{"messages": [{"role": "user"}]}', "line 1: messages[0].content: is missing"),
        ('{"messages": [{"role": "user", "content": [{"type": "file"}]}]}', "'file'"),
        ('{"messages": "x"}', "must be a list"),
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


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_only_line_feeds_divide_a_prompt_file(tmp_path: Path, ends: str) -> None:
    """JSON strings may hold every other separator as it is."""
    texts = [f"one{mark}two" for mark in "\u2028\u2029\x85\u00a0"]
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(("\ufeff" + ends.join(lines) + ends).encode())
    assert [prompt.messages[0]["content"] for prompt in read_prompts(path)] == texts


def test_a_prompt_file_that_is_not_utf8_is_refused(outrider: Any, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"prompt": "caf\xe9"}\n')
    ended = outrider("bench", "--prompts", path)
    assert ended.status == 2
    assert ended.err == f"outrider: --prompts: {path}: is not UTF-8 (byte 0xe9)\n"
