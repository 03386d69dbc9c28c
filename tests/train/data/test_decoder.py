"""Decoding in lock-step gives what whole passes give."""

from __future__ import annotations

import torch
from tiny_training import V, torch_target

from outrider.train.data.decoder import LockstepDecoder


def test_lockstep_decoding_equals_whole_passes():
    target = torch_target()
    ids = torch.randint(V, (3, 20))
    hidden = target.states(ids, ()).hidden
    decoder = LockstepDecoder(target, 3, 20, compiled=False)
    for position in range(20):
        decoder.position.fill_(position)
        logits = decoder.step(ids[:, position], 10 if position < 10 else 20)
        expected = target.logits(hidden[:, position])
        assert torch.allclose(logits, expected, atol=1e-4)
