"""What callers pass: prompts and conversations, one or many, told apart and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Integral
from typing import Final, TypeGuard

import numpy as np

from outrider.text.messages import EXAMPLE, Message, checked_messages, is_list
from outrider.types.errors import RequestError
from outrider.types.lines import shown

#: A raw prompt: text, or tokens as they are.
Prompt = str | Sequence[int]
#: Messages in order, each {"role": ..., "content": ...}; content may be a list of text parts.
Conversation = Sequence[Mapping[str, object]]


class Missing(Enum):
    """Stands for an argument that was not given, so that its lack is told as other faults are."""

    MISSING = "nothing"


MISSING: Final = Missing.MISSING

#: Fields of the mappings that other engines take as prompts.
PROMPT_FIELDS: Final = ("prompt", "prompt_token_ids")


def prompts_of(prompts: object) -> list[Prompt]:
    """One raw prompt or many, as a list; a flat list of integers is one prompt.

    Raises:
        RequestError: something in it is neither text nor a list of token ids.
    """
    if prompts is MISSING:
        raise RequestError("prompts", 'is missing; write llm.generate("Once upon a time", params)')
    given = _listed(prompts)
    if not is_list(given) or _is_tokens(given):
        return [_prompt("prompt", given)]
    if any(_is_message(one) for one in given):
        raise _not_a_prompt("prompt", given)
    return [_prompt(f"prompts[{index}]", one) for index, one in enumerate(given)]


def prompt_of(prompt: object) -> Prompt:
    """One raw prompt.

    Raises:
        RequestError: it is something else, such as several prompts.
    """
    if prompt is MISSING:
        raise RequestError("prompt", 'is missing; write llm.stream("Once upon a time", params)')
    if is_list(prompt) and any(isinstance(one, str) or is_list(one) for one in prompt):
        raise RequestError("prompt", f"must be one, not {shown(prompt)}; call once for each")
    return _prompt("prompt", prompt)


def conversations_of(messages: object) -> list[list[Message]]:
    """One conversation or many, as a list of checked ones; a list of mappings is one.

    Raises:
        RequestError: something in it is not a list of messages.
    """
    if messages is MISSING:
        raise RequestError("messages", f"is missing; write llm.chat([{EXAMPLE}], params)")
    if not is_list(messages) or _is_tokens(messages):
        wanted = f"must be a list such as [{EXAMPLE}]"
        raise RequestError("messages", f"{wanted}, not {shown(messages)}{_remedy(messages)}")
    if any(is_list(one) for one in messages):
        return [checked_messages(one, f"messages[{i}]") for i, one in enumerate(messages)]
    return [checked_messages(messages)] if messages else []


def is_conversation(value: object) -> TypeGuard[Conversation]:
    """Whether a value is meant as one conversation: a list that holds mappings."""
    return is_list(value) and any(isinstance(item, Mapping) for item in value)


def _prompt(name: str, prompt: object) -> Prompt:
    given = _listed(prompt)
    if isinstance(given, str):
        return given
    if _is_tokens(given):
        return [int(token) for token in given]
    if is_list(given) and not given:
        return []
    raise _not_a_prompt(name, prompt)


def _listed(value: object) -> object:
    """An array of numpy's as lists, anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _not_a_prompt(name: str, prompt: object) -> RequestError:
    hint = ""
    if _is_message(prompt) or (is_list(prompt) and any(_is_message(one) for one in prompt)):
        hint = f"; messages go to chat(), as [{EXAMPLE}]"
    elif isinstance(prompt, Mapping):
        inside = next((field for field in PROMPT_FIELDS if field in prompt), None)
        hint = f"; pass its {inside!r} alone" if inside else ""
    elif callable(getattr(prompt, "tolist", None)):
        hint = "; pass its tolist()"
    return RequestError(name, f"must be text or a list of token ids, not {shown(prompt)}{hint}")


def _remedy(messages: object) -> str:
    """What to write instead of something that is no list of messages."""
    if isinstance(messages, str) or is_list(messages):
        return "; raw prompts go to generate()"
    if _is_message(messages):
        return "; put the message into a list"
    if isinstance(messages, Mapping):
        if "messages" in messages:
            return "; pass its 'messages' alone"
        inside = next((field for field in PROMPT_FIELDS if field in messages), None)
        return f"; its {inside!r} goes to generate()" if inside else ""
    return ""


def _is_tokens(value: object) -> TypeGuard[Sequence[int]]:
    """Whether a value is a list of integers, those of other libraries included."""
    if not is_list(value) or not value:
        return False
    return all(isinstance(item, Integral) and not isinstance(item, bool) for item in value)


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and "role" in value
