"""Walks along drafted blocks: the fused operator against the composed one."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import generator, randn, raw

from outrider.kernels.blockwise import Block, Chain
from outrider.kernels.table import Kernels
from outrider.kernels.weights import raw_float

VOCAB, DRAFT, RANK = 500, 203, 64


def make_chain(kernels, ids=True):
    kept = torch.randperm(VOCAB, generator=generator(5))[:DRAFT] if ids else None
    tokens = kernels.prepare([raw("Q8_0", VOCAB, RANK, seed=1)])
    out = kernels.prepare([raw("Q8_0", DRAFT if ids else VOCAB, RANK, seed=2)])
    return Chain(tokens, out, kept)


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
def test_walk_is_the_composed_one(kernels, ids, temperatures, lengths):
    chain, blocks = make_chain(kernels, ids), make_blocks(temperatures, lengths)
    scores = randn(sum(lengths), chain.out.out_features, seed=3)
    got = kernels.walk(chain, scores, blocks)
    assert torch.equal(got, Kernels.walk(kernels, chain, scores, blocks))


def test_blocks_do_not_see_each_other(kernels):
    chain, lengths = make_chain(kernels), [3, 7, 5, 1, 7, 2, 7, 7, 4, 6]
    blocks = make_blocks([0.0, 0.9] * 5, lengths)
    scores = randn(sum(lengths), DRAFT, seed=3)
    whole = kernels.walk(chain, scores, blocks)
    parts = torch.split(scores, lengths)
    alone = [kernels.walk(chain, rows, [block]) for rows, block in zip(parts, blocks, strict=True)]
    assert torch.equal(whole, torch.cat(alone))


def test_each_token_depends_on_the_one_before(kernels):
    """Equal scores in every row: only the bias tells rows apart, and it follows the walk."""
    chain = make_chain(kernels)
    scores = torch.zeros(5, DRAFT)
    got = kernels.walk(chain, scores, [Block(5, 3)]).tolist()
    previous = 3
    for token in got:
        embedded = kernels.embed(chain.tokens, torch.tensor([previous]))
        assert token == int(chain.ids[kernels.linear(embedded, chain.out)[0].argmax()])
        previous = token
    assert len(set(got)) > 1


def test_ties_go_to_the_lowest_draft_id(kernels):
    ids = torch.arange(VOCAB).flip(0)[:DRAFT].contiguous()
    flat = kernels.prepare([raw_float("w", torch.zeros(DRAFT, RANK))])
    chain = Chain(kernels.prepare([raw("F32", VOCAB, RANK)]), flat, ids)
    assert kernels.walk(chain, torch.zeros(2, DRAFT), [Block(2, 0)]).tolist() == [VOCAB - 1] * 2


def test_a_row_of_nan_takes_the_first_draft_id(native):
    chain, scores = make_chain(native), randn(2, DRAFT)
    scores[0] = torch.nan
    first, second = native.walk(chain, scores, [Block(2, 3)]).tolist()
    assert first == int(chain.ids[0])
    assert second == int(native.walk(chain, scores[1:], [Block(1, first)])[0])


def test_a_tip_outside_the_vocabulary_is_refused(native):
    chain = make_chain(native)
    with pytest.raises(IndexError, match="499"):
        native.walk(chain, randn(1, DRAFT), [Block(1, VOCAB)])
