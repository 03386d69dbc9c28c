"""What surrounds the turns of a conversation, as token ids, and how user turns may begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from outrider.train.openers import FOLLOW_UPS, OPENERS
from outrider.types.errors import DrafterError

#: Categories of conversations, in the order of their numbers; "free" has no opener.
CATEGORIES: tuple[str, ...] = ("free", *OPENERS)

_MARKS = ("0f7a1c", "3b9e2d", "7c4d8a")


class ChatEncoder(Protocol):
    """The part of a tokenizer that a frame is made with."""

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text."""

    def render_chat(self, messages: Sequence[Mapping[str, object]], **variables: object) -> str:
        """The prompt text of a conversation."""


@dataclass(frozen=True)
class Frame:
    """Token ids around the turns of a chat.

    Attributes:
        prefix: everything before the first user message.
        header: what follows the end token of a user message, up to the answer.
        again: what follows the end token of an answer, up to the next user message.
        end: the token that ends a turn.
        openers: beginnings of a first user turn, by category (index into CATEGORIES).
        follow_ups: beginnings of a later user turn; the empty one leaves it to the model.
        prompts: whole first user messages, if the model is not to invent them.
        prompt_categories: category of each prompt.
    """

    prefix: tuple[int, ...]
    header: tuple[int, ...]
    again: tuple[int, ...]
    end: int
    openers: tuple[tuple[tuple[int, ...], ...], ...] = (((),),)
    follow_ups: tuple[tuple[int, ...], ...] = ((),)
    prompts: tuple[tuple[int, ...], ...] = ()
    prompt_categories: tuple[int, ...] = field(default=())


def frame_of(tokenizer: ChatEncoder, eos_ids: Sequence[int]) -> Frame:
    """Find the frame of a model's chat template by rendering marked messages.

    Raises:
        DrafterError: the template changes the messages, or turns do not end with an end token.
    """
    first, answer, second = _MARKS
    text = tokenizer.render_chat(
        [
            {"role": "user", "content": first},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": second},
        ]
    )
    parts = []
    rest = text
    for mark in _MARKS:
        head, found, rest = rest.partition(mark)
        if not found:
            raise DrafterError("the chat template does not show the messages as they are")
        parts.append(tokenizer.encode(head, add_special=False))
    prefix, header, again = parts
    if not header or not again or header[0] not in eos_ids or again[0] != header[0]:
        raise DrafterError("the chat template does not end every turn with an end token")

    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special=False))

    openers = tuple(tuple(encode(o) for o in OPENERS[name]) for name in CATEGORIES[1:])
    return Frame(
        prefix=tuple(prefix),
        header=tuple(header[1:]),
        again=tuple(again[1:]),
        end=header[0],
        openers=(((),), *openers),
        follow_ups=((), *(encode(o) for o in FOLLOW_UPS)),
    )


def with_prompts(frame: Frame, path: Path, tokenizer: ChatEncoder) -> Frame:
    """A frame whose first user turns are the lines of a file.

    Raises:
        DrafterError: the file cannot be read or holds no prompt.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise DrafterError(f"{path}: {error.strerror}") from None
    prompts = [tuple(tokenizer.encode(line, add_special=False)) for line in lines if line]
    if not prompts:
        raise DrafterError(f"{path}: holds no prompt")
    return replace(frame, prompts=tuple(prompts), prompt_categories=(0,) * len(prompts))
