"""What ``bench`` makes of recorded counts: loops, shares, totals, the figure."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.bench.measure import (
    BenchRow,
    Key,
    Tally,
    geometric_mean,
    loops,
    rows_of,
    run_group,
    totals_of,
)
from outrider.drafters.ngram import NgramDrafter
from outrider.llm.llm import LLM
from outrider.types.output import CompletionOutput, Delta, Metrics, RequestOutput, Timings
from outrider.types.sampling import SamplingParams
from outrider.types.telemetry import RoundSeconds, Telemetry


def counts(*rounds: tuple[int, int]) -> Telemetry:
    """One request: the round that ends its prompt, then (drafted, accepted) per round."""
    telemetry = Telemetry()
    telemetry.record(0, 0)
    telemetry.prompts += 1
    for drafted, accepted in rounds:
        telemetry.record(drafted, accepted)
    return telemetry


def finished(tokens: list[int], speculation: Telemetry) -> RequestOutput:
    completion = CompletionOutput(0, "", tokens, "length")
    metrics = Metrics(Timings(0.0, 0.5, 1.0), speculation, "x")
    return RequestOutput("r", None, [1], [completion], True, metrics)


@pytest.mark.parametrize(
    ("tokens", "looped"),
    [
        ([], False),
        (list(range(64)), False),
        ([*range(10), *[7] * 32], True),
        ([*range(10), *[7] * 31], False),
        ([*range(10), *[7] * 32, 8], False),
        ([*[7] * 32, *range(100, 110)], False),
        # A unit of 16 tokens needs three rounds, 48 tokens.
        (list(range(16)) * 3, True),
        ([99, *(list(range(16)) * 3)[1:]], False),
        # 17 is too long a unit, and three times are too few for a run of 12.
        (list(range(17)) * 3, False),
        (list(range(17)) * 4, True),
        # Four lines that begin alike, and four that share 11 tokens only.
        ([t for line in range(4) for t in [*range(12), 100 + line, 200 + line]], True),
        ([t for line in range(4) for t in [*range(11), 100 + line, 200 + line]], False),
        # Overlapping runs count once: 23 equal tokens hold 12 of them.
        ([*[7] * 23, *range(100, 110)], False),
        ([*[7] * 48, *range(100, 110)], True),
    ],
)
def test_loops(tokens: list[int], looped: bool) -> None:
    assert loops(tokens) is looped


def test_shares_of_rounds_and_positions() -> None:
    telemetry = counts((3, 2), (1, 0), (0, 0), (3, 3))
    assert telemetry.drafted_rounds_share == pytest.approx(3 / 4), "the prompt's round is no round"
    assert telemetry.drafted_per_round == pytest.approx(7 / 4)
    assert telemetry.acceptance_per_position == pytest.approx([2 / 3, 1.0, 1 / 2])
    assert telemetry.acceptance_length == pytest.approx(1 + 5 / 4)
    misses = counts((2, 0))
    assert misses.acceptance_per_position == [0.0, 0.0]
    nothing = counts()
    assert (nothing.drafted_rounds_share, nothing.drafted_per_round) == (0.0, 0.0)
    assert nothing.acceptance_per_position == []


def test_seconds_of_rounds() -> None:
    spent = RoundSeconds(10.0, 1.0, 2.0) - RoundSeconds(2.0, 0.5, 0.5) + RoundSeconds(2.0)
    assert spent == RoundSeconds(10.0, 0.5, 1.5)
    assert spent.drafting_share == pytest.approx(0.2)
    assert RoundSeconds().drafting_share == 0.0


def test_loops_are_left_out_of_one_acceptance_length() -> None:
    tally = Tally()
    tally.add_request(finished(list(range(40)), counts((2, 1), (2, 0))))
    tally.add_request(finished([5] * 40, counts((4, 4), (4, 4))))
    row = rows_of({("none", "chat", 1): tally})[0]
    assert (row.outputs, row.looped) == (2, 1)
    assert row.acceptance_length == pytest.approx(1 + 9 / 4)
    assert row.acceptance_length_unlooped == pytest.approx(1 + 1 / 2)
    only = Tally()
    only.add_request(finished([5] * 40, counts((4, 4))))
    assert rows_of({("none", "chat", 1): only})[0].acceptance_length_unlooped is None


def recorded() -> dict[Key, Tally]:
    """Plain decoding at 100 tokens/s in both categories; a drafter at 400 and 50."""
    tallies: dict[Key, Tally] = {}
    for drafter, category, seconds, rounds in (
        ("none", "chat", 1.0, [(0, 0)] * 50),
        ("none", "code", 2.0, [(0, 0)] * 50),
        ("ngram", "chat", 2.0, [(2, 0)] * 50),
        ("ngram", "code", 0.5, [(2, 2)] * 50),
    ):
        tally = Tally(tokens=200 if category == "code" else 100, seconds=seconds)
        drafting = 0.25 * seconds if drafter == "ngram" else 0.0
        tally.rounds = RoundSeconds(seconds, drafting, 0.0)
        tally.add_request(finished(list(range(40)), counts(*rounds)))
        tallies[drafter, category, 1] = tally
    return tallies


def test_totals_pool_counts_and_average_speedups() -> None:
    plain, drafted = totals_of(recorded())
    assert (plain.drafter, plain.category, plain.speedup) == ("none", "all", 1.0)
    assert plain.tokens_per_s == pytest.approx(100.0)
    assert drafted.tokens_per_s == pytest.approx(300 / 2.5), "pooled, not averaged"
    assert drafted.speedup == pytest.approx((0.5 * 4.0) ** 0.5)
    assert (drafted.worst_category, drafted.worst_speedup) == ("chat", pytest.approx(0.5))
    assert drafted.acceptance_length == pytest.approx(1 + 100 / 100)
    assert drafted.acceptance_per_position == [0.5, 0.5]
    assert drafted.drafted_per_position == [100, 100]
    assert drafted.drafting_time_share == pytest.approx(0.25)
    assert drafted.outputs == 2
    assert drafted.byte_equal


def test_totals_keep_concurrencies_apart_and_notice_a_difference() -> None:
    tallies = recorded()
    for (drafter, category, _), tally in recorded().items():
        tallies[drafter, category, 8] = tally
    tallies["ngram", "code", 8].outputs[0][3] += 1
    totals = {(t.drafter, t.concurrency): t for t in totals_of(tallies)}
    assert len(totals) == 4
    assert totals["ngram", 1].byte_equal
    assert not totals["ngram", 8].byte_equal
    assert [r.byte_equal for r in rows_of(tallies) if r.concurrency == 8] == [True] * 3 + [False]


def test_a_category_named_all_is_pooled_like_any_other() -> None:
    """A prompt file without categories puts everything into "all"."""
    tallies = {
        (drafter, "all", 1): tally
        for (drafter, category, _), tally in recorded().items()
        if category == "code"
    }
    total = totals_of(tallies)[1]
    assert total.speedup == pytest.approx(4.0)
    assert total.outputs == 1


class Scripted:
    """An engine of four rounds: two that feed the prompt, two that decode."""

    def __init__(self) -> None:
        self.done = 0
        self.round_seconds = RoundSeconds(100.0, 50.0, 0.0)

    @property
    def has_unfinished(self) -> bool:
        return self.done < 4

    def add(self, request: object) -> str:
        return "r"

    def step(self) -> list[Delta]:
        self.done += 1
        asked = 1.0 if self.done > 2 else 0.0
        self.round_seconds += RoundSeconds(4.0, asked, 1.0)
        return [Delta("r", 0, "", (1,) * (self.done - 1), None)] if self.done > 1 else []

    def take(self, request_id: str) -> RequestOutput:
        return finished([1] * 6, counts((1, 1), (2, 2)))


def test_the_clock_starts_with_the_first_token() -> None:
    tally, engine = Tally(), Scripted()
    run_group(engine, [object()], tally)  # type: ignore[arg-type, list-item]
    assert tally.tokens == 2 + 3
    assert tally.rounds == RoundSeconds(8.0, 2.0, 2.0)


def test_an_engine_counts_the_drafters_seconds(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds from below hold on the busiest machine: a call that sleeps takes its time."""
    nap, calls = 0.01, {"propose": 0, "observe": 0}

    def slowed(name: str) -> Any:
        method = getattr(NgramDrafter, name)

        def slow(self: NgramDrafter, *arguments: Any) -> Any:
            calls[name] += 1
            time.sleep(nap)
            return method(self, *arguments)

        return slow

    llm = LLM(tiny, drafter="ngram", draft_length=2)
    for name in calls:
        monkeypatch.setattr(NgramDrafter, name, slowed(name))
    assert llm.engine.round_seconds == RoundSeconds()
    llm.generate("abcabcabc", SamplingParams(max_tokens=8, temperature=0.0))
    spent = llm.engine.round_seconds
    assert calls["propose"] >= 2
    assert calls["observe"] >= 3
    assert spent.asking >= nap * calls["propose"]
    assert spent.observing >= nap * calls["observe"]
    assert spent.total >= spent.asking + spent.observing
    assert llm.engine.max_draft == NgramDrafter().max_draft

    plain = llm.variant(drafter="none").engine
    assert plain.max_draft == 0
    twin = llm.variant(drafter="none")
    twin.generate("abcabcabc", SamplingParams(max_tokens=8, temperature=0.0))
    spent = twin.engine.round_seconds
    assert spent.total > 0
    assert (spent.asking, spent.observing) == (0.0, 0.0)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) == 0.0
    assert geometric_mean([0.0, 2.0]) == 0.0


def test_hardly_drafted_positions_are_not_drawn() -> None:
    from outrider.cli.bench.chart import LAST_POSITION, LEAST_DRAFTED, shown_positions

    row: BenchRow = totals_of(recorded())[1]
    tried = [LEAST_DRAFTED + 1, LEAST_DRAFTED, LEAST_DRAFTED - 1]
    row = replace(row, drafted_per_position=tried, acceptance_per_position=[0.5, 0.25, 1.0])
    assert shown_positions(row) == [0.5, 0.25]
    long = replace(row, drafted_per_position=[99] * 32, acceptance_per_position=[0.5] * 32)
    assert len(shown_positions(long)) == LAST_POSITION


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_figure(tmp_path: Path, ending: str) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    from outrider.cli.bench.chart import plot

    path = tmp_path / f"speed.{ending}"
    tallies = recorded()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot(rows_of(tallies), totals_of(tallies), path, "tiny, greedy")
    if ending == "svg":
        text = path.read_text()
        for label in ("chat", "code", "geometric mean", "0.50", "4.00", "1.41", "ngram"):
            assert f">{label}<" in text
        for label in ("tiny, greedy", "Speedup by kind of prompt", "Acceptance by position"):
            assert f">{label}<" in text
    else:
        assert path.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[ending])
