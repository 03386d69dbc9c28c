"""Messages of a conversation, checked and brought to the one form that chat templates are told.

Clients write content as text, as a list of parts, or not at all beside tool calls; templates are
foreign code that expects text, and renders whatever else it meets. So messages are checked here,
before any template sees them. What the user passed is not modified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from outrider.types.errors import RequestError
from outrider.types.lines import shown

#: One message: ``role`` and ``content`` are text, further fields are as they were given.
Message = dict[str, object]

#: Types of text parts, and the field that holds the text.
TEXT_PARTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
#: What stands between the text parts of one message, as in vLLM and llama.cpp.
PART_SEPARATOR: Final = "\n"
#: Fields beside which the content of an assistant's message may be missing.
CALLS: Final = ("tool_calls", "function_call")
#: How a message and a part are written.
EXAMPLE: Final = '{"role": "user", "content": "..."}'
EXAMPLE_PART: Final = '{"type": "text", "text": "..."}'


def checked_messages(messages: object, name: str = "messages") -> list[Message]:
    """Return a conversation in the form that templates expect.

    Args:
        messages: a list of mappings, each with a ``role`` and a ``content``: text, or a list of
            text parts, which are joined by line breaks. Content that is None or missing beside an
            assistant's tool calls is empty. Arguments of tool calls may be JSON text and become
            the value. Other fields that are not None are passed on; an empty list of tool calls
            is none.
        name: what the user knows the conversation by.

    Raises:
        RequestError: something else; it names the message by its index.
    """
    if not is_list(messages):
        raise RequestError(name, f"must be a list such as [{EXAMPLE}], not {shown(messages)}")
    if not messages:
        raise RequestError(name, f"must hold at least one message, such as {EXAMPLE}")
    return [_message(f"{name}[{index}]", message) for index, message in enumerate(messages)]


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a sequence, and not one of characters or bytes."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _message(name: str, message: object) -> Message:
    if not isinstance(message, Mapping):
        hint = "; call its model_dump()" if callable(getattr(message, "model_dump", None)) else ""
        raise RequestError(name, f"must be a mapping such as {EXAMPLE}, not {shown(message)}{hint}")
    if not all(isinstance(key, str) for key in message):
        raise RequestError(name, f"must have strings as keys, not {shown(dict(message))}")
    fields = {key: value for key, value in message.items() if value is not None}
    role = fields.get("role")
    if not isinstance(role, str) or not role:
        found = (
            f'must be text such as "user", not {shown(role)}' if "role" in fields else "is missing"
        )
        raise RequestError(f"{name}.role", f"{found}; a message is {EXAMPLE}")
    if "tool_calls" in fields:
        fields["tool_calls"] = _tool_calls(f"{name}.tool_calls", fields["tool_calls"])
        if not fields["tool_calls"]:
            del fields["tool_calls"]
    fields["content"] = _content(name, role, fields)
    return fields


def _content(name: str, role: str, fields: Mapping[str, object]) -> str:
    content = fields.get("content")
    if content is None:
        if role == "assistant" and any(field in fields for field in CALLS):
            return ""
        others = [field for field in fields if field != "role"]
        found = f" beside {', '.join(map(repr, others))}" if others else ""
        raise RequestError(f"{name}.content", f"is missing{found}; a message is {EXAMPLE}")
    if isinstance(content, str):
        return _unicode(f"{name}.content", content)
    if is_list(content):
        parts = [_part(f"{name}.content[{i}]", part) for i, part in enumerate(content)]
        return PART_SEPARATOR.join(parts)
    wanted = f"text or a list of parts such as [{EXAMPLE_PART}]"
    raise RequestError(f"{name}.content", f"must be {wanted}, not {shown(content)}")


def _part(name: str, part: object) -> str:
    """The text of one part of a message's content."""
    if isinstance(part, str):
        return _unicode(name, part)
    if not isinstance(part, Mapping):
        raise RequestError(name, f"must be a part such as {EXAMPLE_PART}, not {shown(part)}")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise RequestError(name, f"must have a type; a text part is {EXAMPLE_PART}")
    if kind not in TEXT_PARTS:
        raise RequestError(
            name,
            f"is of type {shown(kind)}, but only text is served; a text part is {EXAMPLE_PART}",
        )
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise RequestError(f"{name}.{TEXT_PARTS[kind]}", f"must be text, not {shown(text)}")
    return _unicode(name, text)


def _unicode(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(name, "must be valid Unicode text (UTF-8)") from None
    return text


def _tool_calls(name: str, calls: object) -> list[object]:
    """Tool calls whose arguments are values: clients send JSON text, templates write it anew."""
    if not is_list(calls):
        raise RequestError(name, f"must be a list, not {shown(calls)}")
    return [_tool_call(f"{name}[{index}]", call) for index, call in enumerate(calls)]


def _tool_call(name: str, call: object) -> object:
    if not isinstance(call, Mapping):
        raise RequestError(name, f"must be a mapping, not {shown(call)}")
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    text = function["arguments"]
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise RequestError(
            f"{name}.function.arguments", f"must be JSON, as a value or as text, not {shown(text)}"
        ) from None
    return {**call, "function": {**function, "arguments": arguments}}
