"""Markov decoding of drafted blocks: the fused operator against the composed one."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import generator, randn, raw

from outrider.kernels.composed import ComposedKernels
from outrider.kernels.values import Block, MarkovWeights
from outrider.kernels.weights import raw_float

VOCAB, DRAFT, RANK = 500, 203, 64


def make_weights(kernels, ids=True):
    kept = torch.randperm(VOCAB, generator=generator(5))[:DRAFT] if ids else None
    tokens = kernels.prepare([raw("Q8_0", VOCAB, RANK, seed=1)])
    out = kernels.prepare([raw("Q8_0", DRAFT if ids else VOCAB, RANK, seed=2)])
    return MarkovWeights(tokens, out, kept)


def make_bias(kernels, ids=True):
    return kernels.prepare_markov_bias(make_weights(kernels, ids))


def make_blocks(temperatures, lengths):
    return [
        Block(length, 7 * i % VOCAB, temperature, 2**63 + i, 11 * i)
        for i, (temperature, length) in enumerate(zip(temperatures, lengths, strict=True))
    ]


@pytest.mark.parametrize("ids", [True, False], ids=["trimmed", "whole"])
@pytest.mark.parametrize(
    ("temperatures", "lengths"),
    [
        ([0.0], [7]),
        ([0.8], [7]),
        ([0.0, 0.7, 0.0], [7, 1, 4]),
        ([0.0, 1.5] * 5, [1, 2, 3, 4, 5, 6, 7, 7, 7, 1]),
    ],
)
def test_the_operator_is_the_composed_one(kernels, ids, temperatures, lengths):
    bias, blocks = make_bias(kernels, ids), make_blocks(temperatures, lengths)
    scores = randn(sum(lengths), DRAFT if ids else VOCAB, seed=3)
    got = kernels.markov_decode(bias, scores, blocks)
    assert torch.equal(got, ComposedKernels.markov_decode(kernels, bias, scores, blocks))


def test_blocks_do_not_see_each_other(kernels):
    bias, lengths = make_bias(kernels), [3, 7, 5, 1, 7, 2, 7, 7, 4, 6]
    blocks = make_blocks([0.0, 0.9] * 5, lengths)
    scores = randn(sum(lengths), DRAFT, seed=3)
    whole = kernels.markov_decode(bias, scores, blocks)
    parts = torch.split(scores, lengths)
    alone = [
        kernels.markov_decode(bias, rows, [block])
        for rows, block in zip(parts, blocks, strict=True)
    ]
    assert torch.equal(whole, torch.cat(alone))


def test_each_token_depends_on_the_one_before(kernels):
    """Equal scores in every row: only the bias tells rows apart, and it follows what was chosen."""
    weights = make_weights(kernels)
    bias = kernels.prepare_markov_bias(weights)
    scores = torch.zeros(5, DRAFT)
    got = kernels.markov_decode(bias, scores, [Block(5, 3)]).tolist()
    previous = 3
    for token in got:
        embedded = kernels.embed(weights.tokens, torch.tensor([previous]))
        assert token == int(weights.ids[kernels.linear(embedded, weights.out)[0].argmax()])
        previous = token
    assert len(set(got)) > 1


def test_ties_go_to_the_lowest_draft_id(kernels):
    ids = torch.arange(VOCAB).flip(0)[:DRAFT].contiguous()
    flat = kernels.prepare([raw_float("w", torch.zeros(DRAFT, RANK))])
    tokens = kernels.prepare([raw("F32", VOCAB, RANK)])
    bias = kernels.prepare_markov_bias(MarkovWeights(tokens, flat, ids))
    chosen = kernels.markov_decode(bias, torch.zeros(2, DRAFT), [Block(2, 0)])
    assert chosen.tolist() == [VOCAB - 1] * 2


def test_a_row_of_nan_takes_the_first_draft_id(native):
    weights, scores = make_weights(native), randn(2, DRAFT)
    bias = native.prepare_markov_bias(weights)
    scores[0] = torch.nan
    first, second = native.markov_decode(bias, scores, [Block(2, 3)]).tolist()
    assert first == int(weights.ids[0])
    assert second == int(native.markov_decode(bias, scores[1:], [Block(1, first)])[0])


def test_a_tip_outside_the_vocabulary_is_refused(native):
    bias = make_bias(native)
    with pytest.raises(IndexError, match="499"):
        native.markov_decode(bias, randn(1, DRAFT), [Block(1, VOCAB)])
