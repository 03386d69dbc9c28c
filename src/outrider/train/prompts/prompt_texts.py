"""The texts that user turns are composed of; they stand in the folder ``texts``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What first turns ask for. Files of conversations hold places in this list, so it only grows.
OPENER_CATEGORIES: Final = ("chat", "code", "math", "rewriting", "summarising", "extraction")

#: Texts by kind, in the order of their file.
Texts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class PromptTexts:
    """Templates, and what fills and varies them. The syntax is told in ``texts/openers.toml``.

    Turns are drawn by place: the same seed gives the same turns while every text keeps its own.

    Attributes:
        openers: templates of first user turns by category, in the order of ``OPENER_CATEGORIES``.
        follow_ups: templates of later user turns.
        passages: sentences of made-up passages, by kind of text.
        notes: informal messages and single sentences.
        records: lines with facts.
        snippets: pieces of code.
        words: words by kind.
        wishes: sentences after a whole turn.
        requests: what goes before a turn that begins with one of ``verbs``.
        greetings: what goes before any turn.
        verbs: first words of turns that ask for something to be done.
    """

    openers: Texts
    follow_ups: tuple[str, ...]
    passages: Texts
    notes: tuple[str, ...]
    records: tuple[str, ...]
    snippets: tuple[str, ...]
    words: Texts
    wishes: tuple[str, ...]
    requests: tuple[str, ...]
    greetings: tuple[str, ...]
    verbs: frozenset[str]


def read_prompt_texts() -> PromptTexts:
    """Read every text of the package."""
    openers = {**_read("openers"), **_read("text_tasks")}
    materials, manners = _read("materials"), _read("manners")
    return PromptTexts(
        openers={category: openers[category] for category in OPENER_CATEGORIES},
        follow_ups=_read("follow_ups")["follow_ups"],
        passages=_read("passages"),
        notes=materials["notes"],
        records=materials["records"],
        snippets=materials["snippets"],
        words=_read("words"),
        wishes=manners["wishes"],
        requests=manners["requests"],
        greetings=manners["greetings"],
        verbs=frozenset(manners["verbs"]),
    )


def _read(name: str) -> Texts:
    """The lists of one file."""
    # Not importlib.resources: an editable install answers with a path that is not one folder.
    path = Path(__file__).resolve().with_name("texts") / f"{name}.toml"
    return {kind: tuple(texts) for kind, texts in tomllib.loads(path.read_text("utf-8")).items()}
