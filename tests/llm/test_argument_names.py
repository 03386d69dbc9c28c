"""What the calls answer, by a name that they do not have, by two names, and not at all."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from outrider import LLM, RequestError, SamplingParams
from outrider.types.synonyms import CALLS
from support.folders import tiny_folder

PARAMS = SamplingParams(temperature=0, max_tokens=2)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(tiny_folder(tmp_path_factory.mktemp("model") / "m"), drafter="none", threads=1)


@pytest.mark.parametrize("beside", [{}, {"params": PARAMS}, {"params": 3}])
@pytest.mark.parametrize(
    ("call", "given", "text"),
    [
        ("generate", {"prompt": "Hi"}, "prompt: @ here; use prompts"),
        ("generate", {"inputs": "Hi"}, "inputs: @ here; use prompts"),
        ("generate", {"Inputs": "Hi"}, "Inputs: @ here; use prompts"),
        ("generate", {"text": "Hi"}, "text: @ here; use prompts"),
        (
            "generate",
            {"prompt_token_ids": [1]},
            "prompt_token_ids: @ here: use prompts, which may be token ids",
        ),
        ("generate", {"input_ids": [1]}, "input_ids: @ here: use prompts, which may be token ids"),
        (
            "generate",
            {"messages": []},
            "messages: @ here: part of a call: llm.chat(messages, params)",
        ),
        ("generate", {"promts": "Hi"}, "promts: @; did you mean prompts?"),
        ("chat", {"conversation": []}, "conversation: @ here; use messages"),
        ("chat", {"conversations": []}, "conversations: @ here; use messages"),
        (
            "chat",
            {"prompt": "Hi"},
            "prompt: @ here: raw prompts go to llm.generate(prompts, params)",
        ),
        (
            "chat",
            {"prompts": ["Hi"]},
            "prompts: @ here: raw prompts go to llm.generate(prompts, params)",
        ),
        ("stream", {"messages": []}, "messages: @ here; use prompt"),
        ("stream", {"conversation": []}, "conversation: @ here; use prompt"),
        ("stream", {"prompts": "Hi"}, "prompts: @ here; use prompt"),
        ("stream", {"inputs": "Hi"}, "inputs: @ here; use prompt"),
        (
            "stream",
            {"prompt_token_ids": [1]},
            "prompt_token_ids: @ here: use prompt, which may be token ids",
        ),
    ],
)
def test_a_name_of_others_is_answered_with_the_right_one(
    llm: LLM, call: str, given: dict[str, Any], text: str, beside: dict[str, Any]
) -> None:
    whole = text.replace("@", f"is no argument of LLM.{call}")
    for unnamed in ((), ("Hi",)):
        with pytest.raises(RequestError) as caught:
            getattr(llm, call)(*unnamed, **given, **beside)
        assert str(caught.value) == whole


@pytest.mark.parametrize(
    ("call", "start"),
    [
        ("generate", 'prompts: is missing; write llm.generate("'),
        ("chat", 'messages: is missing; write llm.chat([{"role": "user", "content": "'),
        ("stream", 'prompt: is missing; write llm.stream("'),
    ],
)
def test_nothing_to_answer_is_one_line(llm: LLM, call: str, start: str) -> None:
    for given in ({}, {"params": PARAMS}):
        with pytest.raises(RequestError) as caught:
            getattr(llm, call)(**given)
        assert str(caught.value).startswith(start)
        assert "\n" not in str(caught.value)


def test_the_right_names_are_served(llm: LLM) -> None:
    (output,) = llm.generate(prompts=[3, 4], params=PARAMS)
    assert output.prompt_token_ids == [3, 4]
    with llm.stream(prompt=[3, 4], params=PARAMS) as stream:
        assert "".join(stream) == output.outputs[0].text


@pytest.mark.parametrize("call", CALLS)
def test_hints_at_arguments_name_those_that_the_call_has(call: str) -> None:
    """A hint that is one word is the name of an argument."""
    known = set(inspect.signature(getattr(LLM, call)).parameters)
    hints: Mapping[str, str] = CALLS[call]
    words = {hint for hint in hints.values() if hint.isidentifier()}
    assert words <= known
    assert words
