"""User turns: every template can be filled, none is a prompt that drafters are measured with."""

from __future__ import annotations

import re

import pytest

from outrider.cli.bench.prompts import builtin_prompts
from outrider.train.prompts.composer import Composer, Turn
from outrider.train.prompts.plain_words import plain_words
from outrider.train.prompts.prompt_texts import read_prompt_texts

TEXTS = read_prompt_texts()
PASSAGE_WORDS = ("harbour", "lantern", "quietly")
#: Longest run of words that a composed turn may share with a prompt.
SHARED = 5


@pytest.fixture(scope="module")
def composer():
    return Composer(TEXTS, 1, PASSAGE_WORDS)


@pytest.fixture(scope="module")
def turns(composer):
    return [turn for name in TEXTS.openers for turn in composer.openers(1500)[name]]


def words_of(text):
    return re.findall(r"[a-z0-9']+", text.lower())


def runs(text, length):
    words = words_of(text)
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def test_every_slot_has_fillings(composer):
    texts = [*TEXTS.follow_ups, *TEXTS.notes, *TEXTS.records, *TEXTS.snippets, *TEXTS.wishes]
    for many in (*TEXTS.openers.values(), *TEXTS.passages.values(), *TEXTS.words.values()):
        assert len(set(many)) > 1
        texts += many
    for text in texts:
        filled = composer._fill(text, {})
        assert "~" not in filled[:-1], text
        assert not re.search(r"\{(?!name\}|'|\n)", filled) or text in TEXTS.snippets, text


def test_turns_are_reproducible(composer):
    def drawn(seed):
        other = Composer(TEXTS, seed, PASSAGE_WORDS)
        return other.openers(20), other.follow_ups(20)

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_turns_are_varied(turns, composer):
    assert len({turn.text for turn in turns}) > len(turns) / 2
    whole = sum(turn.whole for turn in turns) / len(turns)
    assert 0.4 < whole < 0.8
    assert all(turn.text.strip() for turn in turns)
    later = composer.follow_ups(400)
    assert 0.3 < sum(len(turn.text) < 60 for turn in later) / len(later) < 0.9


def test_numbered_slots_agree(composer):
    filled = composer._fill("{first.1} {first.2} {first.1}", {}).split()
    assert filled[0] == filled[2]
    assert composer._fill("{{x}} {word}", {}).startswith("{x} ")


def test_open_templates_are_not_whole(composer):
    assert composer._turn("tell me~") == Turn("Tell me", whole=False)
    assert composer._turn("Tell me.") == Turn("Tell me.", whole=True)


def test_plain_words():
    class Texts:
        def token_text(self, token_id):
            return [" harbour", "harbour", " Harbour", " sea", " water", "<eos>"][token_id]

    assert plain_words(Texts(), 6) == ("harbour", "water")


def test_no_turn_repeats_a_prompt(turns, composer):
    asked = [message["content"] for p in builtin_prompts() for message in p.messages]
    texts = [turn.text for turn in [*turns, *composer.follow_ups(3000)]]
    templates = [
        t for many in (*TEXTS.openers.values(), TEXTS.follow_ups, TEXTS.notes) for t in many
    ]
    known = set().union(*(runs(text, SHARED + 1) for text in asked))
    for text in [*texts, *templates]:
        assert not runs(text, SHARED + 1) & known, text
    whole = {" ".join(words_of(text)) for text in asked}
    assert not whole & {" ".join(words_of(text)) for text in texts}
