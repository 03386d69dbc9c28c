"""``check`` passes on a sound engine and fails, by name, on every planted fault."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli.check.audit import difference, serve
from outrider.cli.check.cases import Case, Probe, drafted_cases, plain_cases, probes
from outrider.kernels.reference import ReferenceKernels
from outrider.types.output import CompletionOutput, TokenLogprob
from outrider.verify.samplers import DirectSampler

QUICK = ("--effort", "quick", "--json")


def test_check_passes_and_has_the_documented_shape(outrider: Any, tiny: str) -> None:
    ended = outrider("check", "--model", tiny, "--drafter", "ngram", *QUICK)
    assert ended.status == 0
    found = ended.json()
    assert set(found) == {"ok", "requests", "byte_equal", "cases"}
    assert found["ok"] is True
    assert found["requests"] == found["byte_equal"] > 0
    assert sum(case["requests"] for case in found["cases"].values()) == found["requests"]
    assert all(set(case) == {"requests", "byte_equal"} for case in found["cases"].values())
    for length in range(1, 16):
        assert f"ngram, draft length {length}" in found["cases"]


def test_check_audits_every_drafter_that_is_asked_for(
    outrider: Any, tiny: str, drafter: str
) -> None:
    ended = outrider("check", "--model", tiny, "-d", "ngram", "-d", drafter, *QUICK)
    assert ended.status == 0
    names = list(ended.json()["cases"])
    assert any(name.startswith("ngram, ") for name in names)
    assert any(name.startswith(f"{drafter}, ") for name in names)


def test_the_table_is_readable(outrider: Any, tiny: str) -> None:
    ended = outrider("check", "--model", tiny, "--drafter", "none", "--effort", "quick")
    assert ended.status == 0
    assert "none, batched, passes of 17 rows" in ended.out
    assert "requests equal" in ended.out


def test_check_fails_if_the_verifier_believes_the_drafter(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = DirectSampler.sample

    def trusting(self: Any, row: Any, position: int, history: Any, guess: Any) -> int:
        right = choose(self, row, position, history, guess)
        return right if guess is None else int(guess.token)

    monkeypatch.setattr(DirectSampler, "sample", trusting)
    ended = outrider("check", "--model", tiny, "--drafter", "ngram", *QUICK)
    assert ended.status == 1
    found = ended.json()
    assert found["ok"] is False
    assert found["byte_equal"] < found["requests"]
    broken = [
        name for name, case in found["cases"].items() if case["byte_equal"] < case["requests"]
    ]
    assert any(name.startswith("replay, ") for name in broken)
    assert not any(name.startswith("none, ") for name in broken)
    assert all(f"{name}: " in ended.err for name in broken)
    assert "plain decoding has" in ended.err


def test_check_fails_if_a_row_depends_on_its_company(
    outrider: Any, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One last bit, in products of more than one row only."""
    linear = ReferenceKernels.linear

    def sloppy(self: Any, x: Any, weight: Any) -> Any:
        y = linear(self, x, weight)
        return y if len(x) == 1 else y * (1.0 + 2.0**-23)

    monkeypatch.setattr(ReferenceKernels, "linear", sloppy)
    arguments = ("--model", tiny, "--kernels", "reference", "--drafter", "none")
    ended = outrider("check", *arguments, *QUICK)
    assert ended.status == 1
    assert ended.json()["ok"] is False
    assert "none, batched" in ended.err


def sampled_like(token: int, logprob: float = -1.0, text: str = "a") -> CompletionOutput:
    entry = TokenLogprob(token, logprob, 1, ((token, logprob),))
    return CompletionOutput(0, text, [token], "length", None, [entry])


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (sampled_like(4), "token 0 is 4"),
        (sampled_like(3, -1.0000000000000002), "log-probabilities"),
        (sampled_like(3, text="b"), "text"),
        (CompletionOutput(0, "a", [3, 3], "length"), "2 tokens"),
        (CompletionOutput(0, "a", [3], "stop"), "ended by"),
    ],
)
def test_every_kind_of_difference_is_seen(found: CompletionOutput, named: str) -> None:
    plain = sampled_like(3)
    assert difference(plain, plain) is None
    assert named in (difference(found, plain) or "")


def test_the_plan_covers_the_promise() -> None:
    requests = probes(24)
    cases = plain_cases(len(requests)) + drafted_cases("ngram", 15, len(requests), "normal")
    assert len({case.name for case in cases}) == len(cases)
    drafted = [case for case in cases if case.draft_length is not None]
    assert {case.draft_length for case in drafted} == set(range(1, 16))
    for group in (drafted, cases):
        assert {case.chunk for case in group} == {17, 33, 512}
        assert {case.gap for case in group} >= {0, 1, 2}
        assert {index for case in group for index in case.probes} == set(range(len(requests)))
    greedy = [probe for probe in requests if probe.params.greedy]
    assert 0 < len(greedy) < len(requests)
    assert {probe.params.logprobs is None for probe in requests} == {True, False}
    assert isinstance(requests[0], Probe)
    assert isinstance(cases[0], Case)


def test_requests_arrive_as_the_case_says(tiny: str) -> None:
    from outrider.engine import Request
    from outrider.llm.llm import LLM
    from outrider.types.sampling import SamplingParams

    llm = LLM(tiny, drafter="none")
    params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
    requests = [Request([5, 6, 7], params), Request([8, 9], params)]

    def most_together(gap: int) -> int:
        engine = llm.variant(drafter="none").engine
        most = 0
        step = engine.step

        def counting() -> Any:
            nonlocal most
            deltas = step()
            most = max(most, len({delta.request_id for delta in deltas}))
            return deltas

        engine.step = counting
        outputs = serve(engine, requests, gap)
        assert [output.prompt_token_ids for output in outputs] == [[5, 6, 7], [8, 9]]
        return most

    assert most_together(0) == 1
    assert most_together(2) == 2
