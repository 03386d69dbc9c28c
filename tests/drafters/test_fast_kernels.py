"""Drafters on the operators that this machine runs: the same structure, other rounding."""

from __future__ import annotations

import pytest
import torch
from drafter_toys import (
    block_tensors,
    draft,
    drafts,
    feed,
    load,
    make_target,
    mtp_config,
    mtp_tensors,
    taps_of,
    zlab_config,
)

from outrider.drafters.base import CommittedRows, DraftSampling, Proposal
from outrider.drafters.context.request import CheckedRequest
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.select import select

SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 12,
    "use_sliding_window": True,
}
CONFIGS = {
    "dflash": zlab_config(top=SLIDING),
    "dspark": zlab_config(
        "DSparkDraftModel", markov_rank=32, enable_confidence_head=True, markov_head_type="gated"
    ),
    "mtp": mtp_config(),
}

BLOCKS = pytest.mark.parametrize("pair", ["dflash", "dspark"], indirect=True)


@pytest.fixture(scope="module")
def targets():
    return make_target(kernels=ReferenceKernels()), make_target(kernels=select())


@pytest.fixture(params=CONFIGS)
def pair(request, tmp_path, targets):
    """The same drafter on the reference and on the fast kernels."""
    config = CONFIGS[request.param]
    tensors = mtp_tensors(config) if request.param == "mtp" else block_tensors(config)
    return [load(tmp_path / str(i), target, config, tensors) for i, target in enumerate(targets)]


def sessions(drafter):
    states = [drafter.begin(DraftSampling()) for _ in range(3)]
    for seed, (state, count) in enumerate(zip(states, (3, 80, 33), strict=True)):
        feed(drafter, state, count, seed)
    return states


@BLOCKS
def test_states_are_close_to_the_references(pair):
    """Keys and values may be stored in 8 bits; a structural fault would be far larger."""
    found = []
    for drafter in pair:
        asks = [CheckedRequest(i, state, 5, 5) for i, state in enumerate(sessions(drafter))]
        found.append(torch.cat(drafter._hidden(asks)))
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 0.03


def test_ragged_batch_equals_alone(pair):
    drafter = pair[1]
    states = sessions(drafter)
    for state, answer in zip(states, drafts(drafter, states, [1, 2, 3], [3, 2, 1]), strict=True):
        tip, length = {3: (1, 3), 80: (2, 2), 33: (3, 1)}[state.length]
        assert answer.tokens == draft(drafter, state, tip, length).tokens


@BLOCKS
def test_round_equals_block_forward(pair):
    drafter = pair[1]
    state = drafter.begin(DraftSampling())
    taps = taps_of(drafter, 45)
    drafter.observe([state], [CommittedRows([1] * 45, 0, taps)])
    by_round = drafter._hidden([CheckedRequest(0, state, 5, drafter.max_draft)])[0]
    features = drafter.backbone.context_features(taps)
    block = drafter.block_embeddings([5])
    by_block = drafter.backbone.forward_block(features, block, torch.arange(45 + len(block)))
    assert torch.equal(by_round, by_block[1 - drafter.config.row_shift :])


def test_restored_drafts_what_the_uninterrupted_one_does(pair):
    drafter = pair[1]
    state, uninterrupted = (drafter.begin(DraftSampling()) for _ in range(2))
    feed(drafter, state, 70)
    feed(drafter, uninterrupted, 61)
    tail = drafter.export_tail(state, 61)
    restored = drafter.restore(tail, DraftSampling())
    for _ in range(3):
        assert draft(drafter, restored).tokens == draft(drafter, uninterrupted).tokens
        feed(drafter, restored, 5)
        feed(drafter, uninterrupted, 5)


def test_forks_and_cold_starts(pair):
    drafter = pair[1]
    state = drafter.begin(DraftSampling())
    drafter.observe([state], [CommittedRows([1] * 70, 0, None)])
    feed(drafter, state, 9)
    twin = state.fork()
    feed(drafter, twin, 4)
    assert all(isinstance(draft(drafter, each), Proposal) for each in (state, twin))
    drafter.audit([state, twin])
