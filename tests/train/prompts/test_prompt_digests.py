"""The same seed composes the same turns for ever.

The conversations that shipped drafters learnt from begin with these turns, and only their seeds are
kept (``dev/training``). So a text may be moved, but neither changed, added, dropped nor put into
another place: a digest that changes here ends the reproducibility of those drafters, and a change
that is meant belongs together with new ones.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from outrider.train.data.chat_frame import CATEGORIES
from outrider.train.prompts.composer import Composer
from outrider.train.prompts.prompt_texts import read_prompt_texts

TEXTS = read_prompt_texts()


def digest(value):
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (list(TEXTS.openers.items()), "82475e2ad409a8a1"),
        (TEXTS.follow_ups, "a5ca1e8df10d8a19"),
        (list(TEXTS.passages.items()), "c2c2015d4878f575"),
        (TEXTS.notes, "3f239f8a84316945"),
        (TEXTS.records, "3daadbdcb4477b25"),
        (TEXTS.snippets, "8eaf42be8f27a63d"),
        (list(TEXTS.words.items()), "1bcaaef646a80b76"),
        (TEXTS.wishes, "3997f7d7ee18f51e"),
        (CATEGORIES, "3c0c33af1a4e50ce"),
    ],
)
def test_every_text_in_order(texts, expected):
    assert digest(texts) == expected


@pytest.mark.parametrize(
    ("seed", "words", "expected"),
    [
        (0, (), "ca1bbe90879d6976"),
        (0, ("harbour", "lantern", "quietly"), "17eff961208bd4ae"),
        (1, ("harbour", "lantern", "quietly"), "dbd65509978b780b"),
        (7, (), "11a7da6ad6bd7060"),
    ],
)
def test_composed_turns(seed, words, expected):
    composer = Composer(TEXTS, seed, words)
    first = [
        (name, [(turn.text, turn.whole) for turn in turns])
        for name, turns in composer.openers(350).items()
    ]
    later = [(turn.text, turn.whole) for turn in composer.follow_ups(2000)]
    assert digest([first, later]) == expected
