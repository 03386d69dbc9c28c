"""The state machine that writes conversations, on a target with random weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_training import END, FRAME, SMALL, torch_target

from outrider.train.data.chat_frame import (
    Opening,
)
from outrider.train.data.conversations import Conversations, concatenate, load_conversations
from outrider.train.data.generation import generate
from outrider.train.data.writer import NO_FLOOR, sample


@pytest.fixture(scope="module")
def rows():
    # The random target seldom ends a turn by itself: make the end token likely.
    target = torch_target()
    target.head[END] += target.head.std() * 3
    return generate(target, FRAME, SMALL)


def turns(ids, supervised):
    """Split a row at its end tokens into (tokens, supervised tokens) by turn."""
    out, start = [], 0
    for index, token in enumerate(ids):
        if token == END:
            out.append((ids[start : index + 1], supervised[start : index + 1]))
            start = index + 1
    return [*out, (ids[start:], supervised[start:])]


def test_rows_follow_the_frame(rows):
    assert len(rows) >= SMALL.samples
    several = 0
    for ids, supervised in zip(rows.ids.tolist(), rows.supervised.tolist(), strict=True):
        user, *rest = turns(ids, supervised)
        assert user[0][:3] == [1, 2, 3]
        assert not any(user[1])
        answers = [turn for turn in rest if any(turn[1])]
        several += len(answers) > 1
        for index, (tokens, marks) in enumerate(rest):
            if index % 2 == 0 and len(tokens) > 3:
                assert tokens[:2] == [4, 5]
                assert not any(marks[:2])
                assert all(marks[2:])
            elif len(tokens) > 3:
                assert tokens[:2] == [6, 7]
                assert not any(marks)
                assert len(tokens) <= 2 + 1 + SMALL.user_tokens
    assert several > 2


def test_categories_and_openers(rows):
    for ids, category in zip(rows.ids.tolist(), rows.category.tolist(), strict=True):
        if category == 1:
            assert ids[3:5] == [8, 9] or ids[3] == 10
    assert set(rows.category.tolist()) == {0, 1}


def test_greedy_answers_are_the_targets(rows):
    target = torch_target()
    target.head[END] += target.head.std() * 3
    greedy = rows.select(rows.greedy)
    assert 0 < len(greedy) < len(rows)
    ids = greedy.ids.long()
    hidden = target.states(ids, ()).hidden
    chosen = target.logits(hidden).argmax(-1)[:, :-1]
    marks = greedy.supervised[:, 1:]
    assert (chosen[marks] == ids[:, 1:][marks]).float().mean() > 0.99


def test_given_prompts_are_answered_as_they_are():
    prompts = ((20, 21, 22), (23,))
    openers = tuple((Opening(prompt, whole=True),) for prompt in prompts)
    frame = replace(FRAME, openers=openers)
    config = replace(SMALL, samples=12, max_turns=1)
    rows = generate(torch_target(), frame, config)
    for ids, marks, category in zip(
        rows.ids.tolist(), rows.supervised.tolist(), rows.category.tolist(), strict=True
    ):
        asked = [1, 2, 3, *prompts[category], END, 4, 5]
        assert ids[: len(asked)] == asked
        assert marks.index(True) == len(asked)


def test_whole_follow_ups_are_answered():
    target = torch_target()
    target.head[END] += target.head.std() * 3
    frame = replace(FRAME, follow_ups=(Opening((12, 13), whole=True),))
    rows = generate(target, frame, SMALL)
    again = [*FRAME.again, 12, 13, END, *FRAME.header]
    found = 0
    for ids, marks in zip(rows.ids.tolist(), rows.supervised.tolist(), strict=True):
        for at in range(len(ids) - len(again) - 1):
            if ids[at : at + len(again)] == again:
                found += 1
                assert not any(marks[at : at + len(again)])
                assert marks[at + len(again)]
    assert found > 2


def test_short_answers_are_cut():
    config = replace(SMALL, short_share=1.0, short_tokens=5)
    rows = generate(torch_target(), FRAME, config)
    lengths = set()
    for ids, marks in zip(rows.ids.tolist(), rows.supervised.tolist(), strict=True):
        for tokens, answer in turns(ids, marks):
            lengths.add(sum(answer))
            if sum(answer) == 5 and tokens[-1] == END:
                # The end that was forced is not the model's own.
                assert not answer[-1]
    assert max(lengths) == 5


def test_long_turns_are_cut_and_still_answered():
    whole = Opening(tuple(range(8, 40)) * 3, whole=True)
    frame = replace(FRAME, openers=((whole,),))
    rows = generate(torch_target(), frame, replace(SMALL, samples=12))
    for ids, marks in zip(rows.ids.tolist(), rows.supervised.tolist(), strict=True):
        assert ids[29:32] == [END, *FRAME.header]
        assert marks.index(True) == SMALL.length // 2


def test_sampling():
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 2.0, 1.0]]).repeat(4000, 1)
    none = torch.full((4000,), NO_FLOOR)
    assert (sample(logits, torch.zeros(4000), none) == 1).all()
    drawn = sample(logits, torch.full((4000,), 0.7), none)
    share = torch.bincount(drawn, minlength=3) / 4000
    assert torch.allclose(share, (logits[0] / 0.7).softmax(0), atol=0.03)
    floored = sample(logits, torch.ones(4000), torch.full((4000,), -1.5))
    assert (floored != 0).all()
    assert (floored == 2).any()


def test_conversations_on_disk(tmp_path, rows):
    path = tmp_path / "rows.safetensors"
    rows.save(path)
    again = concatenate([load_conversations(path)] * 2)
    assert len(again) == 2 * len(rows)
    training, heldout = again.split(5)
    assert (len(training), len(heldout)) == (2 * len(rows) - 5, 5)
    assert torch.equal(heldout.ids, rows.ids[-5:])
    assert [p.name for p in tmp_path.iterdir()] == ["rows.safetensors"]
    assert isinstance(again.select(again.greedy), Conversations)
