"""Multi-token prediction against a float64 oracle that recomputes everything from scratch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from drafter_toys import (
    HEADS,
    KV,
    LAYERS,
    D,
    H,
    V,
    begin,
    draft,
    drafts,
    feed,
    fresh_draft,
    load,
    make_target,
    mtp_config,
    mtp_tensors,
    same,
    taps_of,
    tokens_of,
)

from outrider.drafters.base import CommittedRows, DraftSampling, Proposal
from outrider.drafters.mtp.hidden_states import HiddenStates
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN, gumbel_noise


@pytest.fixture(scope="module")
def target():
    return make_target()


def make(path, target, **options):
    config = mtp_config(draft_depth=4, **options)
    return load(path, target, config, mtp_tensors(config)), config


class Oracle:
    """The head in float64: no cache, every slot computed anew at every step."""

    def __init__(self, target, config, tensors):
        self.t = {name.removeprefix("mtp."): tensor.double() for name, tensor in tensors.items()}
        self.offset = 1.0 if config.get("zero_centered_norms") else 0.0
        self.normed = config.get("target_state", "normed") == "normed"
        self.window = config.get("sliding_window", 10**9)
        self.embedding = target.embed(torch.arange(V)).double()
        self.target_norm = target.norm.double()

    def norm(self, x, weight, eps=1e-6):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight

    def own_norm(self, x, name):
        name = f"{name}.weight"
        return self.norm(x, self.t[name] + self.offset) if name in self.t else x

    def linear(self, x, name):
        return x @ self.t[f"layers.0.{name}.weight"].T

    def rotate(self, x, positions):
        frequencies = 10000.0 ** (-torch.arange(0, D, 2).double() / D)
        angles = (positions[:, None].double() * frequencies)[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1
        )

    def run(self, tokens, hidden, positions):
        """Outputs of all slots: token p beside the hidden state before it."""
        x = (
            torch.cat(
                [
                    self.own_norm(self.embedding[tokens], "pre_fc_norm_embedding"),
                    self.own_norm(hidden, "pre_fc_norm_hidden"),
                ],
                -1,
            )
            @ self.t["fc.weight"].T
        )
        n = self.own_norm(x, "layers.0.input_layernorm")
        q, k, v = (
            self.linear(n, f"self_attn.{name}_proj").reshape(len(n), -1, D) for name in "qkv"
        )
        q = self.rotate(self.own_norm(q, "layers.0.self_attn.q_norm"), positions)
        k = self.rotate(self.own_norm(k, "layers.0.self_attn.k_norm"), positions)
        k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        distance = positions[:, None] - positions[None]
        seen = (distance >= 0) & (distance < self.window)
        scores = torch.einsum("nhd,mhd->hnm", q, k) * D**-0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        mixed = torch.einsum("hnm,mhd->nhd", weights, v).flatten(1)
        x = x + self.linear(mixed, "self_attn.o_proj")
        n = self.own_norm(x, "layers.0.post_attention_layernorm")
        gate, up = self.linear(n, "mlp.gate_proj"), self.linear(n, "mlp.up_proj")
        return self.own_norm(
            x + self.linear(torch.nn.functional.silu(gate) * up, "mlp.down_proj"), "norm"
        )

    def chain(self, tokens, taps, tip, depth, threshold=0.0):
        """Greedy drafts after the committed tokens and ``tip``, with their probabilities."""
        states = taps.double()
        if self.normed:
            states = self.norm(states, self.target_norm, 1e-5)
        fed, hidden = [*tokens[1:], tip], list(states)
        drafts, confidences = [], []
        for _ in range(depth):
            positions = torch.arange(1, len(fed) + 1)
            out = self.run(torch.tensor(fed), torch.stack(hidden), positions)[-1]
            probabilities = (self.embedding @ out).softmax(-1)
            if probabilities.max() < threshold:
                break
            drafts.append(int(probabilities.argmax()))
            confidences.append(float(probabilities.max()))
            fed.append(drafts[-1])
            hidden.append(out)
        return drafts, confidences


OPTIONS = {
    "plain": {},
    "residual": {"target_state": "residual"},
    "zero-centred": {"zero_centered_norms": True},
    "sliding": {"sliding_window": 6, "use_sliding_window": True},
    "no head norms": {"qk_norm": False},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [2, 9, 45])
def test_chain_equals_the_oracle(tmp_path, target, options, count):
    """Also after rounds that refresh accepted slots from the target's true states."""
    drafter, config = make(tmp_path, target, **OPTIONS[options])
    oracle = Oracle(target, config, mtp_tensors(config))
    state = begin(drafter, count)
    for _ in range(3):
        proposal = draft(drafter, state)
        drafts, confidences = oracle.chain(
            tokens_of(state.length), taps_of(drafter, state.length), 5, 4
        )
        assert proposal.tokens == drafts
        assert proposal.confidences == pytest.approx(confidences, rel=1e-4)
        feed(drafter, state, 3)


def test_confidence_ends_the_chain(tmp_path, target):
    plain, config = make(tmp_path / "plain", target)
    oracle = Oracle(target, config, mtp_tensors(config))
    whole = [draft(plain, begin(plain, 20 + n)).confidences for n in range(6)]
    threshold = sorted(c for each in whole for c in each)[12] + 1e-5
    cutting, _ = make(tmp_path / "cut", target, confidence_threshold=threshold)
    lengths = set()
    for n in range(6):
        tokens, _ = oracle.chain(tokens_of(20 + n), taps_of(cutting, 20 + n), 5, 4, threshold)
        assert draft(cutting, begin(cutting, 20 + n)).tokens == tokens
        lengths.add(len(tokens))
    assert len(lengths) > 1


def test_a_confidence_at_the_threshold_is_enough(tmp_path, target):
    plain, _ = make(tmp_path / "plain", target)
    confidences = draft(plain, begin(plain, 20)).confidences
    least = min(confidences)
    cutting, _ = make(tmp_path / "cut", target, confidence_threshold=least)
    assert len(draft(cutting, begin(cutting, 20)).tokens) == len(confidences) == 4
    cutting, _ = make(tmp_path / "more", target, confidence_threshold=least * (1 + 1e-9))
    assert len(draft(cutting, begin(cutting, 20)).tokens) == confidences.index(least)


def test_draws_with_the_targets_noise_at_each_tokens_position(tmp_path, target):
    """Greedy and drawn chains share their first state: its logits and the noise give the token."""
    drafter, config = make(tmp_path, target)
    oracle = Oracle(target, config, mtp_tensors(config))
    state = begin(drafter, 20, sampling=DraftSampling(0.9, 77, STREAM_TOKEN))
    proposal = draft(drafter, state)
    states = oracle.norm(taps_of(drafter, 20).double(), oracle.target_norm, 1e-5)
    fed, hidden = [*tokens_of(20)[1:], 5], list(states)
    for place, token in enumerate(proposal.tokens):
        out = oracle.run(torch.tensor(fed), torch.stack(hidden), torch.arange(1, len(fed) + 1))[-1]
        noise = gumbel_noise(77, STREAM_TOKEN, 20 + 1 + place, np.arange(V))
        assert token == int(((oracle.embedding @ out) / 0.9 + torch.from_numpy(noise)).argmax())
        fed.append(token)
        hidden.append(out)
    assert len(proposal.tokens) == 4
    assert proposal.probabilities is None


def test_batch_equals_alone(tmp_path, target):
    drafter, _ = make(tmp_path, target, confidence_threshold=0.02)
    samplings = [DraftSampling(), DraftSampling(0.7, 3, STREAM_DRAFT), DraftSampling()]
    states = [begin(drafter, 4 + 40 * i, i, s) for i, s in enumerate(samplings)]
    answers = drafts(drafter, states, [1, 2, 3], [4, 3, 1])
    for state, tip, length, answer in zip(states, [1, 2, 3], [4, 3, 1], answers, strict=True):
        assert same(answer, draft(drafter, state, tip, length))
    assert answers[1].probabilities.shape == (len(answers[1].tokens), V)
    drafter.audit(states)


def test_trimmed_vocabulary(tmp_path, target):
    ids = torch.arange(5, 65)
    config = mtp_config(draft_vocab_size=60)
    tensors = {**mtp_tensors(config), "d2t": torch.full((60,), 5)}
    drafter = load(tmp_path, target, config, tensors)
    assert drafter.head.ids.tolist() == ids.tolist()
    proposal = draft(drafter, begin(drafter, 20))
    assert set(proposal.tokens) <= set(ids.tolist())
    assert len(proposal.tokens) == 3


def test_a_single_token_is_not_yet_a_pair(tmp_path, target):
    """The first slot has no predecessor, yet the first target state starts the chain."""
    drafter, config = make(tmp_path, target)
    state = begin(drafter, 1)
    assert (state.length, drafter.pool.num_used) == (1, 0)
    oracle = Oracle(target, config, mtp_tensors(config))
    assert draft(drafter, state).tokens == oracle.chain([0], taps_of(drafter, 1), 5, 4)[0]
    empty = drafter.begin(DraftSampling())
    assert draft(drafter, empty) == Proposal()


def test_reads_the_last_layer(tmp_path, target):
    drafter, _ = make(tmp_path, target)
    assert drafter.taps == (LAYERS - 1,)


class TestPlantedFaults:
    """Slots paired with the wrong state, or a stale state kept, must show against the oracle."""

    def chain(self, tmp_path, target, taps):
        drafter, config = make(tmp_path, target)
        state = drafter.begin(DraftSampling())
        drafter.observe([state], [CommittedRows(tokens_of(30), 0, taps(drafter))])
        oracle = Oracle(target, config, mtp_tensors(config))
        return draft(drafter, state), oracle.chain(tokens_of(30), taps_of(drafter, 30), 5, 4)

    def test_sound(self, tmp_path, target):
        found, (tokens, _) = self.chain(tmp_path, target, lambda d: taps_of(d, 30))
        assert found.tokens == tokens

    def test_states_shifted_by_one(self, tmp_path, target):
        found, (_, confidences) = self.chain(tmp_path, target, lambda d: taps_of(d, 30).roll(1, 0))
        assert found.confidences != pytest.approx(confidences, rel=1e-2)

    def test_raw_state_in_place_of_the_normed_one(self, tmp_path, target):
        drafter, config = make(tmp_path, target, target_state="residual")
        oracle = Oracle(target, {**config, "target_state": "normed"}, mtp_tensors(config))
        found = draft(drafter, begin(drafter, 30))
        _, confidences = oracle.chain(tokens_of(30), taps_of(drafter, 30), 5, 4)
        assert found.confidences != pytest.approx(confidences, rel=1e-2)


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["plain", "residual"])
def test_memory_does_not_grow_with_the_session(tmp_path, target, options):
    """32 states of 64 floats are 8 KiB, whatever came before; a large piece goes with the next."""
    drafter, _ = make(tmp_path, target, **OPTIONS[options])
    state = begin(drafter, 201)
    assert state.hidden.nbytes == 201 * H * 4
    for _ in range(40):
        feed(drafter, state, 4)
        assert state.hidden.nbytes == 32 * H * 4 == 8192
    twin = state.fork()
    feed(drafter, twin, 50)
    assert twin.hidden.nbytes == 51 * H * 4, "the last piece, and the state before it"
    feed(drafter, twin, 1)
    assert twin.hidden.nbytes == 8192
    state.release()
    assert state.hidden.nbytes == 0


def test_a_failed_round_is_set_back_however_many_rows_it_had(tmp_path, target):
    drafter, _ = make(tmp_path, target)
    for rows in (1, 31, 32, 33, 70):
        state = begin(drafter, 40)
        feed(drafter, state, rows)
        state.roll_back(40)
        assert state.hidden.at(39) is not None
        assert state.hidden.at(40) is None
        drafter.recover([state])
        assert same(draft(drafter, state), fresh_draft(drafter, 40))
        feed(drafter, state, rows)
        assert same(draft(drafter, state), fresh_draft(drafter, 40 + rows))
        drafter.audit([state])
        state.release()


def test_a_page_back_can_be_gone_back_to_and_no_further(tmp_path, target):
    drafter, _ = make(tmp_path, target)
    state = begin(drafter, 50)
    for _ in range(14):
        feed(drafter, state, 1)
    for upto in (64, 63, 50, 34, 33):
        twin = state.fork()
        twin.truncate(upto)
        assert same(draft(drafter, twin), fresh_draft(drafter, upto))
        twin.release()
        assert drafter.export_tail(state, upto).upto == upto
    assert drafter.export_tail(state, 32) is None
    assert drafter.export_tail(state, 65) is None
    assert drafter.tails.refused == {
        "export: target state not kept": 1,
        "export: position not observed": 1,
    }
    used = drafter.pool.num_used
    twin = state.fork()
    feed(drafter, twin, 40)
    twin.truncate(32)
    assert (twin.length, twin.cache.pages, drafter.pool.num_used) == (32, [], used)
    assert draft(drafter, twin) == Proposal(), "it starts cold"
    feed(drafter, twin, 2)
    assert len(draft(drafter, twin).tokens) == 4
    assert twin.cache.floor == 33
    drafter.audit([state, twin])


def test_hidden_states_are_kept_by_position():
    states = HiddenStates()
    states.append(4, torch.arange(6.0).reshape(3, 2))
    states.append(7, torch.full((2, 2), 9.0))
    assert states.at(3) is None
    assert states.at(5).tolist() == [2.0, 3.0]
    assert states.at(8).tolist() == [9.0, 9.0]
    assert states.at(9) is None
    twin = states.copy()
    states.truncate(6)
    assert states.at(6) is None
    assert states.at(5).tolist() == [2.0, 3.0]
    assert twin.at(6).tolist() == [4.0, 5.0]
    states.truncate(0)
    assert states.at(4) is None


def test_hidden_states_are_copies_and_replace_what_was_there():
    rows = torch.zeros(3, 2)
    states = HiddenStates()
    states.append(0, rows)
    rows.fill_(7.0)
    assert states.at(2).tolist() == [0.0, 0.0]
    states.append(2, torch.ones(2, 2))
    assert [states.at(p).tolist()[0] for p in range(4)] == [0.0, 0.0, 1.0, 1.0]
    assert len(states) == 4
    states.append(5, torch.full((1, 2), 5.0))
    assert states.at(3) is None, "position 4 is missing: nothing before it can be paired"
    assert (states.at(5).tolist(), len(states)) == ([5.0, 5.0], 1)
