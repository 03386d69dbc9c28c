"""Composes user turns: draws a template, fills its slots, and varies the manner."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from outrider.train.prompts.prompt_texts import PromptTexts

#: Share of follow-ups that begin a new task.
NEW_TASK_SHARE: Final = 0.5
#: Marks a template that the model completes.
OPEN: Final = "~"

_SLOT: Final = re.compile(r"\{\{|\}\}|\{([a-z]+)(?:\.(\d))?\}")


@dataclass(frozen=True)
class Turn:
    """A user turn.

    Attributes:
        text: what is given of it.
        whole: whether that is all; if not, the model goes on.
    """

    text: str
    whole: bool


class Composer:
    """Draws user turns; equal texts, seeds and words give equal turns."""

    def __init__(self, texts: PromptTexts, seed: int, words: Sequence[str]) -> None:
        """Set up a stream of turns; ``words`` fill the slot {word}."""
        self._texts = texts
        self._random = Random(seed)
        self._words = {**texts.words, "word": tuple(words) or texts.words["animal"]}
        pick, draw = self._pick, self._random.randint
        names = texts.words["first"]
        self._makers: Mapping[str, Callable[[], str]] = {
            "n": lambda: str(draw(2, 12)),
            "nn": lambda: str(draw(13, 99)),
            "nnn": lambda: str(draw(100, 999)),
            "day": lambda: str(draw(1, 28)),
            "year": lambda: str(draw(1820, 2029)),
            "hour": lambda: f"{draw(6, 22)}:{draw(0, 11) * 5:02}",
            "price": lambda: f"{pick(('', '$', '$', '€', '£'))}{draw(200, 9900) / 100:.2f}",
            "phone": lambda: f"{draw(200, 999)} {draw(100, 999)} {draw(1000, 9999)}",
            "mail": lambda: f"{pick(names).lower()}@{pick(('mail', 'post'))}.example",
            "code": lambda: f"{chr(draw(65, 90))}{chr(draw(65, 90))}-{draw(1000, 99999)}",
            "note": lambda: pick(texts.notes),
            "snippet": lambda: pick(texts.snippets),
            "records": lambda: "\n".join([pick(texts.records)] * draw(1, 5)),
            "passage": lambda: self._sentences(2, 6),
            "start": lambda: self._sentences(1, 2),
        }

    def openers(self, count: int) -> dict[str, list[Turn]]:
        """``count`` first turns of every category."""
        return {name: [self.opener(name) for _ in range(count)] for name in self._texts.openers}

    def follow_ups(self, count: int) -> list[Turn]:
        """``count`` later turns: remarks on the answer, and new tasks."""
        names = tuple(self._texts.openers)
        return [
            self.opener(self._pick(names))
            if self._random.random() < NEW_TASK_SHARE
            else self._turn(self._pick(self._texts.follow_ups))
            for _ in range(count)
        ]

    def opener(self, category: str) -> Turn:
        """One first turn of a category."""
        turn = self._turn(self._pick(self._texts.openers[category]))
        if turn.whole and category in ("chat", "code") and self._random.random() < 0.2:
            turn = Turn(f"{turn.text} {self._fill(self._pick(self._texts.wishes), {})}", turn.whole)
        return self._mannered(turn)

    def _pick(self, options: Sequence[str]) -> str:
        return self._random.choice(options)

    def _turn(self, template: str) -> Turn:
        text = self._fill(template.removesuffix(OPEN), {})
        return Turn(text[:1].upper() + text[1:], not template.endswith(OPEN))

    def _sentences(self, least: int, most: int) -> str:
        """A passage: some sentences of one kind, in order, the first of them always."""
        passages = self._texts.passages
        sentences = passages[self._pick(tuple(passages))]
        count = min(self._random.randint(least, most), len(sentences)) - 1
        rest = sorted(self._random.sample(range(1, len(sentences)), count))
        return " ".join([sentences[0], *(sentences[index] for index in rest)])

    def _fill(self, template: str, bound: dict[str, str]) -> str:
        """Fill slots, those within the fillings too; ``bound`` keeps numbered ones."""

        def filling(match: re.Match[str]) -> str:
            name, number = match.groups()
            if name is None:
                return match.group()[0]
            if number is None:
                return self._filling(name, bound)
            if match.group() not in bound:
                bound[match.group()] = self._filling(name, bound)
            return bound[match.group()]

        return _SLOT.sub(filling, template)

    def _filling(self, name: str, bound: dict[str, str]) -> str:
        if name in self._makers:
            made = self._makers[name]()
            # Numbered slots agree within a passage, but two passages have their own.
            return self._fill(made, {}) if "{" in made else made
        return self._fill(self._pick(self._words[name]), bound)

    def _mannered(self, turn: Turn) -> Turn:
        """Sometimes polite, hasty, or with other line breaks."""
        text, chance = turn.text, self._random.random()
        first = text.split(" ", 1)[0]
        if chance < 0.1 and first in self._texts.verbs:
            text = f"{self._pick(self._texts.requests)} {_small(text)}"
        elif chance < 0.15:
            text = f"{self._pick(self._texts.greetings)} {text}"
        elif chance < 0.25:
            text = _small(text).removesuffix(".") if turn.whole else _small(text)
        if self._random.random() < 0.25:
            text = text.replace(":\n\n", self._pick((":\n", ": ", ' "')))
        return Turn(text, turn.whole)


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]
