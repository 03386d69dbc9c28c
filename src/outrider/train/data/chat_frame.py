"""What surrounds the turns of a conversation, as token ids, and how user turns may begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from outrider.train.prompts.composer import Turn
from outrider.train.prompts.prompt_file import read_prompts
from outrider.train.prompts.prompt_texts import OPENER_CATEGORIES
from outrider.types.errors import DrafterError

#: Categories of conversations, in the order of their numbers; "free" has no opener.
CATEGORIES: tuple[str, ...] = ("free", *OPENER_CATEGORIES)

_MARKS = ("0f7a1c", "3b9e2d", "7c4d8a")


class ChatEncoder(Protocol):
    """The part of a tokenizer that a frame is made with."""

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of a text."""

    def render_chat(self, messages: Sequence[Mapping[str, object]], **variables: object) -> str:
        """The prompt text of a conversation."""


@dataclass(frozen=True)
class Opening:
    """What is given of a user turn.

    Attributes:
        tokens: its first token ids.
        whole: whether the turn ends there; if not, the model goes on.
    """

    tokens: tuple[int, ...]
    whole: bool


#: Leaves the whole turn to the model.
FREE = Opening((), whole=False)


@dataclass(frozen=True)
class Frame:
    """Token ids around the turns of a chat.

    Attributes:
        prefix: everything before the first user message.
        header: what follows the end token of a user message, up to the answer.
        again: what follows the end token of an answer, up to the next user message.
        end: the token that ends a turn.
        openers: first user turns, by category (index into CATEGORIES).
        follow_ups: later user turns.
    """

    prefix: tuple[int, ...]
    header: tuple[int, ...]
    again: tuple[int, ...]
    end: int
    openers: tuple[tuple[Opening, ...], ...] = ((FREE,),)
    follow_ups: tuple[Opening, ...] = (FREE,)


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

    return Frame(tuple(prefix), tuple(header[1:]), tuple(again[1:]), header[0])


def with_turns(
    frame: Frame,
    openers: Mapping[str, Sequence[Turn]],
    follow_ups: Sequence[Turn],
    tokenizer: ChatEncoder,
) -> Frame:
    """A frame with given user turns; "free" ones, and one free follow-up, stay.

    Args:
        frame: the frame.
        openers: first turns by category.
        follow_ups: later turns.
        tokenizer: encodes them.
    """

    def opening(turn: Turn) -> Opening:
        return Opening(tuple(tokenizer.encode(turn.text, add_special=False)), turn.whole)

    return replace(
        frame,
        openers=((FREE,), *(tuple(map(opening, openers[name])) for name in CATEGORIES[1:])),
        follow_ups=(FREE, *map(opening, follow_ups)),
    )


def with_prompts(frame: Frame, path: Path, tokenizer: ChatEncoder) -> Frame:
    """A frame whose first user turns are the lines of a file; errors are ``read_prompts``'."""
    ids = [tuple(tokenizer.encode(line, add_special=False)) for line in read_prompts(path)]
    return replace(frame, openers=(tuple(Opening(prompt, whole=True) for prompt in ids),))
