"""One request of a call fails while it runs: what the others made is not lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import outrider.llm.llm as llm_module
from outrider import LLM, NumericsError, SamplingParams
from outrider.kernels.reference import ReferenceKernels
from outrider.types.output import RequestOutput
from support.damaged import UNTIED, damaged
from support.run import alone, views
from support.tiny import tiny_target

BAD_TOKEN = 40
GOOD = [[3, 4, 5, 6], [9, 8, 7]]
BAD = [3, BAD_TOKEN, 5]
PARAMS = SamplingParams(temperature=0, seed=1, max_tokens=12, ignore_eos=True)


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """An LLM that one token of its vocabulary spoils."""
    tensor = "model.embed_tokens.weight"
    target = damaged(ReferenceKernels(), tensor, float("nan"), row=BAD_TOKEN)
    monkeypatch.setattr(llm_module, "make_target", lambda *given, **named: target)
    with LLM("damaged", drafter="ngram") as made:
        yield made


def right() -> list[RequestOutput]:
    return alone(tiny_target(UNTIED, ReferenceKernels()), [(prompt, PARAMS) for prompt in GOOD])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_outputs_of_the_others_come_with_the_error(llm: LLM, place: int) -> None:
    prompts = [*GOOD[:place], BAD, *GOOD[place:]]
    counts: list[int] = []
    with pytest.raises(NumericsError, match="from the embedding on") as caught:
        llm.generate(prompts, PARAMS, lambda label, done, total: counts.append(done))
    outputs = caught.value.outputs
    assert caught.value.place == "the embedding"
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert counts[-1] == len(prompts)
    failed = outputs.pop(place)
    assert isinstance(failed.error, NumericsError)
    assert failed.outputs[0].finish_reason == "error"
    assert views(outputs) == views(right())
    assert all(output.error is None and output.finished for output in outputs)


def test_two_that_fail_are_both_told(llm: LLM) -> None:
    with pytest.raises(NumericsError) as caught:
        llm.generate([BAD, GOOD[0], BAD[1:]], PARAMS)
    assert [output.error is None for output in caught.value.outputs] == [False, True, False]


def test_the_next_call_is_right(llm: LLM) -> None:
    with pytest.raises(NumericsError):
        llm.generate([BAD, GOOD[0]], PARAMS)
    assert views(llm.generate(GOOD, PARAMS)) == views(right())


def test_a_stream_keeps_what_it_has_itself(llm: LLM) -> None:
    stream = llm.stream(BAD, PARAMS)
    with pytest.raises(NumericsError) as caught:
        list(stream)
    assert caught.value.outputs == []
    assert stream.output is not None
    assert stream.output.outputs[0].finish_reason == "error"
