"""Prompts and conversations told apart; near misses are told what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from outrider.llm.inputs import conversations_of, is_conversation, prompt_of, prompts_of
from outrider.types.errors import RequestError

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        ([[1], [2, 3], "c"], [[1], [2, 3], "c"]),
        ([np.int64(1), np.int32(2)], [[1, 2]]),
        (range(3), [[0, 1, 2]]),
        ([], []),
        ([[]], [[]]),
    ],
)
def test_prompts(given: Any, right: Any) -> None:
    found = prompts_of(given)
    assert found == right
    assert {type(token) for one in found if isinstance(one, list) for token in one} <= {int}


@pytest.mark.parametrize(
    ("given", "place", "hint"),
    [
        (None, "prompt", "not None"),
        (5, "prompt", "text or a list of token ids"),
        (b"abc", "prompt", "text or a list of token ids"),
        ({"prompt": "hi"}, "prompt", "pass its 'prompt' alone"),
        ({"prompt_token_ids": [1]}, "prompt", "pass its 'prompt_token_ids' alone"),
        ([{"prompt": "hi"}], "prompts[0]", "pass its 'prompt' alone"),
        (HI, "prompt", "messages go to chat()"),
        ([HI], "prompt", "messages go to chat()"),
        ([[HI]], "prompts[0]", "messages go to chat()"),
        (torch.tensor([1, 2]), "prompt", "pass its tolist()"),
        (["a", None], "prompts[1]", "not None"),
        ([1.0], "prompts[0]", "not 1.0"),
        ([True], "prompts[0]", "not True"),
        ([[1, "a"]], "prompts[0]", "token ids"),
        ([1, [2]], "prompts[0]", "token ids"),
    ],
)
def test_what_is_no_prompt_is_told_what_to_write(given: Any, place: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        prompts_of(given)
    assert caught.value.parameter == place
    assert hint in str(caught.value)


@pytest.mark.parametrize("given", [["a", "b"], [[1], [2]], [[HI]]])
def test_a_stream_takes_one_prompt(given: Any) -> None:
    assert not is_conversation(given)
    with pytest.raises(RequestError, match=r"must be one, .*call once for each"):
        prompt_of(given)


def test_conversations() -> None:
    other = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert conversations_of([HI, other]) == [[HI, HI]]
    assert conversations_of((HI,)) == [[HI]]
    assert conversations_of([[other], (HI, HI)]) == [[HI], [HI, HI]]
    assert conversations_of([]) == []


@pytest.mark.parametrize(
    ("given", "place", "hint"),
    [
        ("hi", "messages", 'must be a list such as [{"role": "user", "content": "..."}]'),
        ("hi", "messages", "raw prompts go to generate()"),
        ([1, 2], "messages", "raw prompts go to generate()"),
        (HI, "messages", "put the message into a list"),
        ({"messages": [HI]}, "messages", "pass its 'messages' alone"),
        ({"prompt": "hi"}, "messages", "its 'prompt' goes to generate()"),
        (None, "messages", "not None"),
        (["hi"], "messages[0]", "must be a mapping such as"),
        ([HI, "hi"], "messages[1]", "must be a mapping such as"),
        ([[]], "messages[0]", "at least one message"),
        ([[HI], HI], "messages[1]", "must be a list such as"),
        ([[HI], [HI, {"role": "user"}]], "messages[1][1].content", "is missing"),
    ],
)
def test_what_is_no_conversation_is_told_what_to_write(given: Any, place: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        conversations_of(given)
    assert caught.value.parameter == place
    assert hint in str(caught.value)
