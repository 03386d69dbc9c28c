"""User turns: every template can be filled, none is a prompt that drafters are measured with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outrider.cli.bench.prompts import builtin_prompts
from outrider.train.compose import Composer, Turn, plain_words
from outrider.train.follow_ups import FOLLOW_UPS
from outrider.train.frame import read_prompts
from outrider.train.openers import OPENERS
from outrider.train.passages import NOTES, PASSAGES, RECORDS, SNIPPETS
from outrider.train.words import WORDS

PASSAGE_WORDS = ("harbour", "lantern", "quietly")
#: Longest run of words that a composed turn may share with a prompt.
SHARED = 5


@pytest.fixture(scope="module")
def composer():
    return Composer(1, PASSAGE_WORDS)


@pytest.fixture(scope="module")
def turns(composer):
    return [turn for name in OPENERS for turn in composer.openers(1500)[name]]


def words_of(text):
    return re.findall(r"[a-z0-9']+", text.lower())


def runs(text, length):
    words = words_of(text)
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def test_every_slot_has_fillings(composer):
    texts = [*FOLLOW_UPS, *NOTES, *RECORDS, *SNIPPETS]
    for many in (*OPENERS.values(), *PASSAGES.values(), *WORDS.values()):
        assert len(set(many)) > 1
        texts += many
    for text in texts:
        filled = composer._fill(text, {})
        assert "~" not in filled[:-1], text
        assert not re.search(r"\{(?!name\}|'|\n)", filled) or text in SNIPPETS, text


def test_turns_are_reproducible(composer):
    def drawn(seed):
        other = Composer(seed, PASSAGE_WORDS)
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
    templates = [t for many in (*OPENERS.values(), FOLLOW_UPS, NOTES) for t in many]
    known = set().union(*(runs(text, SHARED + 1) for text in asked))
    for text in [*texts, *templates]:
        assert not runs(text, SHARED + 1) & known, text
    whole = {" ".join(words_of(text)) for text in asked}
    assert not whole & {" ".join(words_of(text)) for text in texts}


def test_only_line_feeds_divide_a_file_of_prompts(tmp_path: Path) -> None:
    texts = [f"one{mark}two" for mark in "\u2028\u2029\x85\x0b\x0c\x1c\x1e"]
    path = tmp_path / "prompts.txt"
    path.write_bytes(("\ufeff" + "\r\n\n".join(texts)).encode())
    assert read_prompts(path) == texts
