"""Messages as clients send them: one form for templates, the rest refused by its place."""

from __future__ import annotations

import copy
from collections import UserDict, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.text.messages import checked_messages
from outrider.types.errors import RequestError

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}


def user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


def text(content: object) -> dict[str, object]:
    return {"type": "text", "text": content}


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("hi", "hi"),
        ("", ""),
        ([text("hi")], "hi"),
        ([text("a"), text("b")], "a\nb"),
        ((text("a"), {"type": "input_text", "text": "b"}), "a\nb"),
        ([{"type": "output_text", "text": "a", "annotations": []}], "a"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        (["a", text("b")], "a\nb"),
        ([UserDict(text("a"))], "a"),
        ([text("a\n"), text("")], "a\n\n"),
        ([], ""),
    ],
)
def test_text_parts_are_joined(content: object, right: str) -> None:
    assert checked_messages(user(content)) == user(right)


@pytest.mark.parametrize("beside", [{"tool_calls": [CALL]}, {"function_call": {"name": "f"}}])
@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_no_content_beside_calls_is_empty(beside: Any, content: Any) -> None:
    message = checked_messages([{"role": "assistant", **content, **beside}])[0]
    assert message["content"] == ""
    assert set(message) == {"role", "content", *beside}


@pytest.mark.parametrize(
    ("arguments", "right"),
    [('{"a": [1]}', {"a": [1]}), ("", {}), ({"a": 1}, {"a": 1}), (None, None), ("7", 7)],
)
def test_arguments_of_calls_are_values(arguments: object, right: object) -> None:
    """Templates write them as JSON themselves; text would be quoted twice."""
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    found: Any = checked_messages([{"role": "assistant", "tool_calls": [call]}])
    wanted = {"id": "1", "function": {"name": "f", "arguments": right}}
    assert found[0]["tool_calls"] == [wanted]


def test_other_fields_are_passed_on_unless_they_are_none() -> None:
    """What ``model_dump`` of a client's message holds."""
    dumped = {"content": "x", "role": "assistant", "refusal": None, "audio": None, "tool_calls": []}
    assert checked_messages([dumped]) == [{"role": "assistant", "content": "x"}]
    tool = {"role": "tool", "content": "4", "tool_call_id": "1", "name": "f", "own": [1]}
    assert checked_messages([tool]) == [tool]


def test_every_kind_of_list_and_mapping_is_taken_and_none_is_modified() -> None:
    given: list[Any] = [
        UserDict({"role": "system", "content": [text("s")]}),
        {"role": "assistant", "content": None, "tool_calls": [CALL], "name": None},
    ]
    before = copy.deepcopy(given)
    right = [
        {"role": "system", "content": "s"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": [1]}}}],
        },
    ]
    for messages in (given, tuple(given), deque(given)):
        assert checked_messages(messages) == right
    assert given == before


@pytest.mark.parametrize(
    ("messages", "place", "reason"),
    [
        ("hi", "messages", "must be a list"),
        (None, "messages", "must be a list"),
        (b"hi", "messages", "must be a list"),
        ({"role": "user", "content": "hi"}, "messages", "must be a list"),
        (iter(user("hi")), "messages", "must be a list"),
        ([], "messages", "at least one message"),
        (["hi"], "messages[0]", "must be a mapping such as"),
        ([*user("x"), None], "messages[1]", "must be a mapping such as"),
        ([("user", "hi")], "messages[0]", "must be a mapping such as"),
        ([{"content": "x"}], "messages[0].role", "is missing"),
        ([{"role": None, "content": "x"}], "messages[0].role", "is missing"),
        ([{"role": 3, "content": "x"}], "messages[0].role", "not 3"),
        ([{"role": "", "content": "x"}], "messages[0].role", "not ''"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role", "not ['user']"),
        ([{"role": "user"}], "messages[0].content", "is missing"),
        ([{"role": "user", "content": None}], "messages[0].content", "is missing"),
        ([{"role": "user", "text": "Hi"}], "messages[0].content", "is missing beside 'text'"),
        ([{"role": "assistant"}], "messages[0].content", "is missing"),
        ([{"role": "assistant", "tool_calls": []}], "messages[0].content", "is missing"),
        ([{"role": "user", "tool_calls": [CALL]}], "messages[0].content", "is missing"),
        ([{"role": "user", "content": "x", 1: 2}], "messages[0]", "strings as keys"),
        (user(5), "messages[0].content", "not 5"),
        (user(True), "messages[0].content", "not True"),
        (user(b"x"), "messages[0].content", "not b'x'"),
        (user(text("x")), "messages[0].content", "list of parts"),
        (user("a\udcff"), "messages[0].content", "Unicode"),
        (user([text("a\udcff")]), "messages[0].content[0]", "Unicode"),
        (user([text("a"), 5]), "messages[0].content[1]", "must be a part such as"),
        (user([[text("a")]]), "messages[0].content[0]", "must be a part such as"),
        (user([None]), "messages[0].content[0]", "must be a part such as"),
        (user([{"text": "a"}]), "messages[0].content[0]", "must have a type"),
        (user([text(None)]), "messages[0].content[0].text", "not None"),
        (user([text(5)]), "messages[0].content[0].text", "not 5"),
        (user([{"type": "text"}]), "messages[0].content[0].text", "not None"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls", "a list"),
        ([{"role": "assistant", "tool_calls": ["x"]}], "messages[0].tool_calls[0]", "a mapping"),
    ],
)
def test_the_rest_is_refused_by_its_place(messages: object, place: str, reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        checked_messages(messages)
    assert caught.value.parameter == place
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["image_url", "input_image", "input_audio", "audio_url", "video_url", "file", "thing"]
)
def test_parts_that_are_not_text_are_refused_by_name(kind: str) -> None:
    part = {"type": kind, kind: {"url": "data:"}, "text": "not this"}
    with pytest.raises(RequestError) as caught:
        checked_messages([*user("a"), *user([text("b"), part])])
    assert caught.value.parameter == "messages[1].content[1]"
    assert repr(kind) in str(caught.value)
    assert "only text" in str(caught.value)


@pytest.mark.parametrize("arguments", ["{", "a: 1", "[" * 100_000])
def test_arguments_that_are_not_json_are_refused(arguments: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    with pytest.raises(RequestError, match=r"^messages\[0\]\.tool_calls\[0\]\.function\.argum"):
        checked_messages([{"role": "assistant", "tool_calls": [call]}])


THINGS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.binary(max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "x"]), inner
        ),
    ),
    max_leaves=12,
)


@given(THINGS)
def test_whatever_comes_a_template_is_told_text_or_nothing(messages: object) -> None:
    try:
        found = checked_messages(messages)
    except RequestError:
        return
    assert found == checked_messages(found)
    for message in found:
        assert isinstance(message["role"], str)
        assert isinstance(message["content"], str)
