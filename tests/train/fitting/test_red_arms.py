"""Faults that training losses hide must show in real rounds.

Each arm breaks one thing in the way it has been broken in public trainers; the simulation of real
rounds must tell it from the sound network by a clear margin.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from tiny_training import H, evaluated, trained

from outrider.train.fitting import objective
from outrider.train.networks import block


@pytest.fixture(scope="module")
def sound(target, dspark):
    return evaluated(dspark[0], target)


@pytest.mark.parametrize("taps", [(2, 3), (0, 1)])
def test_taps_shifted_by_one_layer(taps, target, dspark, sound):
    shifted = evaluated(dspark[0], target, taps)
    assert shifted.tau < sound.tau - 0.3


def test_mask_row_untrained(target, dspark, sound):
    broken = copy.deepcopy(dspark[0])
    torch.manual_seed(5)
    with torch.no_grad():
        broken.mask_embedding.copy_(torch.randn(H) * 0.02)
    found = evaluated(broken, target)
    # The first draft comes from the anchor's own row, and so survives.
    assert found.positions[0] > 0.8
    assert found.positions[1] < 0.6 * sound.positions[1]


def test_markov_input_off_by_one(target, dspark, sound, monkeypatch):
    broken = copy.deepcopy(dspark[0])

    def draft(hidden, tips, head):
        drafts, previous, before = [], tips, tips
        for index in range(hidden.shape[-2]):
            logits = broken.logits(hidden[..., index, :], before, head.weight)
            before, previous = previous, head.d2t[logits.argmax(-1)]
            drafts.append(previous)
        return torch.stack(drafts, -1)

    monkeypatch.setattr(broken, "draft", draft)
    assert evaluated(broken, target).tau < sound.tau - 0.3


@pytest.mark.parametrize("shift", [0, 2])
def test_labels_shifted_by_one(shift, target, tmp_path, monkeypatch):
    labels_of = objective.labels_of

    def shifted(batch, drafts):
        anchors = (batch.anchors + shift - 1).clamp(min=0)
        return labels_of(replace(batch, anchors=anchors), drafts)

    monkeypatch.setattr(objective, "labels_of", shifted)
    network, trainer = trained("dspark", target, tmp_path)
    assert trainer.history.log[-1].ce < 0.6 * trainer.history.log[0].ce
    assert evaluated(network, target).tau < 1.5


def _leaking(first_key):
    """Masks under which rows also see keys that real rounds do not have."""
    block_mask = block.block_mask

    def leak(anchors, rows, length, window, causal):
        mask = block_mask(anchors, rows, length, window, causal).clone()
        context, blocks = mask[..., :length], mask[..., length:]
        (context if first_key == "context" else blocks).fill_(True)
        return mask

    return leak


@pytest.mark.parametrize("what", ["context", "blocks"])
def test_mask_leaks(what, target, dspark, sound, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(block, "block_mask", _leaking(what))
        network, trainer = trained("dspark", target, tmp_path)
    # It looks better than the sound one in training, and is worse in real rounds.
    assert trainer.history.log[-1].ce < dspark[1].history.log[-1].ce
    assert evaluated(network, target).tau < sound.tau - 0.5
