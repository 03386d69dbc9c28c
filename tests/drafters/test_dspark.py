"""DSpark's heads and walk against a float64 oracle, and drawing with the target's noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drafter_toys import (
    H,
    V,
    begin,
    block_tensors,
    draft,
    drafts,
    fresh_draft,
    load,
    make_target,
    same,
    zlab_config,
)

from outrider.drafters.base import DrafterFault, DraftSampling, Proposal
from outrider.drafters.head import argmax_lowest
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN, gumbel_noise
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows

RANK = 12
KEPT = 70


@pytest.fixture(scope="module")
def target():
    return make_target()


def config_of(kind="vanilla", **options):
    return zlab_config(
        "DSparkDraftModel",
        2,
        markov_rank=RANK,
        markov_head_type=kind,
        sliding_window=None,
        **options,
    )


def trimmed(config, seed=4):
    """The same drafter over KEPT tokens of the vocabulary."""
    ids = torch.randperm(V, generator=torch.Generator().manual_seed(seed))[:KEPT].sort().values
    config["dflash_config"]["draft_vocab_size"] = KEPT
    return ids, {"d2t": ids - torch.arange(KEPT)}


def hidden_of(drafter, state, tip):
    """Final states of a session's whole block, float64 [b, H]."""
    group = RowGroup(state.length, drafter.config.block_size, state.cache.pages, state.cache.floor)
    block = drafter.block_embeddings([tip])
    return drafter.backbone.forward_round(block, Rows((group,)), drafter.pool.store).double()


class Oracle:
    """The Markov and confidence heads in float64, written from their formulas."""

    def __init__(self, tensors, kind, target, ids=None):
        self.t = {name: tensor.double() for name, tensor in tensors.items()}
        self.kind = kind
        embedding = target.embed(torch.arange(V)).double()
        self.ids = torch.arange(V) if ids is None else ids
        self.head = embedding[self.ids]

    def bias(self, hidden, before, memory):
        w1 = self.t["markov_head.markov_w1.weight"][before]
        if self.kind == "vanilla":
            inner = w1
        elif self.kind == "gated":
            joint = torch.cat([hidden, w1])
            gate = self.linear("markov_head.gate_proj", joint)
            inner = torch.sigmoid(gate) * w1
        else:
            joint = torch.cat([memory, w1, hidden])
            g, c, o = self.linear("markov_head.joint_proj", joint).chunk(3)
            memory = torch.sigmoid(g) * memory + (1 - torch.sigmoid(g)) * torch.tanh(c)
            inner = torch.tanh(o)
        return self.t["markov_head.markov_w2.weight"] @ inner, memory

    def linear(self, name, x):
        return self.t[name + ".weight"] @ x + self.t[name + ".bias"]

    def confidence(self, hidden, before, with_markov):
        w1 = self.t["markov_head.markov_w1.weight"][before]
        x = torch.cat([hidden, w1]) if with_markov else hidden
        return float(torch.sigmoid(self.linear("confidence_head.proj", x)))

    def walk(self, hidden, tip, with_markov=None, threshold=0.0):
        tokens, confidences, memory, before = [], [], torch.zeros(RANK).double(), tip
        for row in hidden:
            if with_markov is not None:
                confidence = self.confidence(row, before, with_markov)
                if confidence < threshold:
                    break
                confidences.append(confidence)
            bias, memory = self.bias(row, before, memory)
            before = int(self.ids[(self.head @ row + bias).argmax()])
            tokens.append(before)
        return tokens, confidences


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_walk_equals_the_oracle(tmp_path, target, kind, trim):
    config = config_of(kind, enable_confidence_head=True, confidence_head_with_markov=True)
    ids, more = trimmed(config) if trim else (None, {})
    tensors = block_tensors(config)
    drafter = load(tmp_path, target, config, {**tensors, **more})
    oracle = Oracle(tensors, kind, target, ids)
    for tip in (0, 5, 44):
        state = begin(drafter, 20 + tip, seed=tip)
        proposal = draft(drafter, state, tip)
        tokens, confidences = oracle.walk(hidden_of(drafter, state, tip), tip, with_markov=True)
        assert proposal.tokens == tokens
        assert len(tokens) == drafter.max_draft == 6
        assert proposal.confidences == pytest.approx(confidences, rel=1e-5)


@pytest.mark.parametrize("with_markov", [False, True])
def test_confidence_cuts_the_draft(tmp_path, target, with_markov):
    config = config_of(enable_confidence_head=True, confidence_head_with_markov=with_markov)
    tensors = block_tensors(config)
    oracle = Oracle(tensors, "vanilla", target)
    drafter = load(tmp_path / "all", target, config, tensors)
    walks = [begin(drafter, 30, seed) for seed in range(8)]
    found = [oracle.walk(hidden_of(drafter, state, 5), 5, with_markov)[1] for state in walks]
    levels = sorted(confidence for confidences in found for confidence in confidences)
    lengths = set()
    for threshold in (levels[8] + 1e-6, levels[24] + 1e-6, levels[40] + 1e-6):
        config["dflash_config"]["confidence_threshold"] = threshold
        cutting = load(tmp_path / str(threshold), target, config, tensors)
        for seed, whole in enumerate(walks):
            state = begin(cutting, 30, seed)
            tokens, confidences = oracle.walk(
                hidden_of(cutting, state, 5), 5, with_markov, threshold
            )
            proposal = draft(cutting, state)
            assert proposal.tokens == tokens == draft(drafter, whole).tokens[: len(tokens)]
            assert proposal.confidences == pytest.approx(confidences, rel=1e-5)
            lengths.add(len(tokens))
    assert len(lengths) > 2, f"the thresholds cut at {lengths} only"


@pytest.mark.parametrize("kind", ["vanilla", "gated"])
def test_a_confidence_at_the_threshold_is_enough(tmp_path, target, kind):
    config = config_of(kind, enable_confidence_head=True)
    drafter = load(tmp_path / "all", target, config)
    confidences = draft(drafter, begin(drafter, 30)).confidences
    least = min(confidences)
    config["dflash_config"]["confidence_threshold"] = least
    cutting = load(tmp_path / "cut", target, config)
    assert len(draft(cutting, begin(cutting, 30)).tokens) == len(confidences) == 6
    config["dflash_config"]["confidence_threshold"] = np.nextafter(least, 1.0)
    cutting = load(tmp_path / "more", target, config)
    found = draft(cutting, begin(cutting, 30))
    assert len(found.tokens) == len(found.confidences) == confidences.index(least)


def test_confidence_bias_may_be_missing(tmp_path, target):
    config = config_of(enable_confidence_head=True)
    tensors = block_tensors(config)
    zero = {**tensors, "confidence_head.proj.bias": torch.zeros(1)}
    without = {name: t for name, t in tensors.items() if name != "confidence_head.proj.bias"}
    proposals = []
    for index, own in enumerate((zero, without)):
        drafter = load(tmp_path / str(index), target, config, own)
        proposals.append(draft(drafter, begin(drafter, 30)))
    assert proposals[0] == proposals[1]


@pytest.mark.parametrize("kind", ["vanilla", "rnn"])
def test_batch_equals_alone(tmp_path, target, kind):
    """Ragged contexts, ragged lengths, walks that end early, greedy beside drawn."""
    config = config_of(kind, enable_confidence_head=True, confidence_threshold=0.2)
    drafter = load(tmp_path, target, config)
    samplings = [
        DraftSampling(),
        DraftSampling(0.8, 1, STREAM_TOKEN),
        DraftSampling(1.3, 2, STREAM_DRAFT),
        DraftSampling(),
    ]
    states = [begin(drafter, 5 + 30 * i, i, s) for i, s in enumerate(samplings)]
    tips, lengths = [3, 5, 8, 13], [6, 3, 5, 1]
    for state, tip, length, proposal in zip(
        states, tips, lengths, drafts(drafter, states, tips, lengths), strict=True
    ):
        alone = draft(drafter, state, tip, length)
        assert same(proposal, alone)
        assert (proposal.probabilities is None) == (alone.probabilities is None)


@pytest.mark.parametrize("confidence", [False, True])
@pytest.mark.parametrize("kind", ["vanilla", "gated"])
def test_states_that_are_not_finite_are_a_fault_of_their_session(
    tmp_path, target, kind, confidence
):
    """In the fused draft (vanilla) and in the composed one; neighbours draft as if alone."""
    drafter = load(tmp_path, target, config_of(kind, enable_confidence_head=confidence))
    assert (drafter._fused is not None) == (kind == "vanilla")
    states = [begin(drafter, n, n) for n in (30, 40, 50)]
    expected = [draft(drafter, state) for state in states]
    page = states[1].cache.pages[1] * PAGE_TOKENS
    drafter.pool.store.v[:, page + 3] = float("nan")
    answers = drafts(drafter, states, [5] * 3, [drafter.max_draft] * 3)
    for place in (0, 2):
        assert same(answers[place], expected[place])
        assert len(answers[place].tokens) == drafter.max_draft
    assert str(answers[1]) == "the drafter's states are not finite"
    assert isinstance(answers[1], DrafterFault)


@pytest.mark.parametrize("row", [0, 2, 5])
@pytest.mark.parametrize("confidence", [False, True])
def test_one_row_that_is_not_finite_spoils_the_fused_draft(
    tmp_path, target, monkeypatch, row, confidence
):
    """Whatever stands before it, and although the draft would be cut before it."""
    config = config_of(enable_confidence_head=confidence, confidence_threshold=0.5)
    drafter = load(tmp_path, target, config)
    sure = torch.full((12,), 0.1)
    sure[6 + row] = float("nan")
    chosen = torch.arange(12)
    monkeypatch.setattr(drafter.kernels, "draft_blocks", lambda *_: (chosen, sure), raising=False)
    states = [begin(drafter, 9), begin(drafter, 9)]
    answers = drafts(drafter, states, [5, 5], [6, 6])
    kept = [] if confidence else [0, 1, 2, 3, 4, 5]
    assert answers[0] == Proposal(kept, None, [])
    assert isinstance(answers[1], DrafterFault)


class TestDrawing:
    def plain(self, tmp_path, target, sampling):
        drafter = load(tmp_path, target, zlab_config())
        return drafter, begin(drafter, 25, sampling=sampling)

    def test_uses_the_targets_noise_at_the_tokens_position(self, tmp_path, target):
        drafter, state = self.plain(tmp_path, target, DraftSampling(0.9, 77, STREAM_TOKEN))
        proposal = draft(drafter, state, 5)
        logits = target.logits(hidden_of(drafter, state, 5)[1:].float()).numpy()
        for row, token in enumerate(proposal.tokens):
            noise = gumbel_noise(77, STREAM_TOKEN, 25 + 1 + row, np.arange(V))
            assert token == int((logits[row] / np.float32(0.9) + noise).argmax())
        assert proposal.probabilities is None
        assert proposal.tokens != draft(drafter, begin(drafter, 25), 5).tokens

    def test_records_the_distribution_on_the_drafters_stream(self, tmp_path, target):
        drafter, state = self.plain(tmp_path, target, DraftSampling(0.9, 77, STREAM_DRAFT))
        proposal = draft(drafter, state, 5)
        logits = target.logits(hidden_of(drafter, state, 5)[1:].float())
        assert torch.allclose(proposal.probabilities, (logits / 0.9).softmax(-1), atol=1e-6)

    def test_tiny_temperatures_are_greedy(self, tmp_path, target):
        drafter, state = self.plain(tmp_path, target, DraftSampling(1e-30, 7, STREAM_DRAFT))
        proposal = draft(drafter, state, 5)
        assert proposal.tokens == draft(drafter, begin(drafter, 25), 5).tokens
        assert bool(proposal.probabilities.isfinite().all())

    def test_trimmed_vocabulary_draws_by_target_ids(self, tmp_path, target):
        config = config_of()
        ids, more = trimmed(config)
        tensors = block_tensors(config)
        drafter = load(tmp_path, target, config, {**tensors, **more})
        state = begin(drafter, 25, sampling=DraftSampling(0.9, 77, STREAM_DRAFT))
        proposal = draft(drafter, state, 5)
        oracle = Oracle(tensors, "vanilla", target, ids)
        before = 5
        for row, hidden in enumerate(hidden_of(drafter, state, 5)):
            scores = (oracle.head @ hidden + oracle.bias(hidden, before, None)[0]) / 0.9
            noise = gumbel_noise(77, STREAM_DRAFT, 26 + row, ids.numpy())
            before = int(ids[(scores + torch.from_numpy(noise)).argmax()])
            assert proposal.tokens[row] == before
            expected = torch.zeros(V).double()
            expected[ids] = scores.softmax(-1)
            assert torch.allclose(proposal.probabilities[row].double(), expected, atol=1e-6)


def test_row_shift_chooses_the_rows(tmp_path, target):
    """DFlash's row 0 predicts nothing; shifted, it predicts the first draft."""
    tensors = block_tensors(zlab_config())
    plain = load(tmp_path / "plain", target, zlab_config(), tensors)
    shifted = load(tmp_path / "shifted", target, zlab_config(sample_from_anchor=True), tensors)
    assert (plain.max_draft, shifted.max_draft) == (5, 6)
    rows = hidden_of(plain, begin(plain, 12), 5).float()
    assert draft(plain, begin(plain, 12)).tokens == target.argmax(rows[1:]).tolist()
    assert draft(shifted, begin(shifted, 12)).tokens == target.argmax(rows).tolist()


def test_ties_go_to_the_lowest_id():
    scores = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert argmax_lowest(scores).tolist() == [1, 0]


class TestPlantedFaults:
    """A Markov input off by one, and a norm left out, must show."""

    def test_markov_reads_the_token_before(self, tmp_path, target):
        config = config_of()
        tensors = block_tensors(config)
        drafter = load(tmp_path, target, config, tensors)
        oracle = Oracle(tensors, "vanilla", target)
        state = begin(drafter, 20)
        hidden = hidden_of(drafter, state, 5)
        assert draft(drafter, state, 5).tokens == oracle.walk(hidden, 5)[0]
        assert draft(drafter, state, 5).tokens != oracle.walk(hidden, 6)[0]

    def test_final_norm(self, tmp_path, target):
        config = config_of()
        tensors = block_tensors(config)
        spoiled = {**tensors, "norm.weight": torch.ones(H)}
        one = load(tmp_path / "a", target, config, tensors)
        other = load(tmp_path / "b", target, config, spoiled)
        drafts = [[fresh_draft(d, 20, seed).tokens for seed in range(8)] for d in (one, other)]
        assert drafts[0] != drafts[1]
