"""The block backbone: its four forwards, and parity with the public ``dflash`` package."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from drafter_toys import (
    TAPS,
    H,
    V,
    block_tensors,
    draft,
    drafts,
    load,
    make_target,
    zlab_config,
)
from transformers import DynamicCache
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config

from outrider.drafters.base import CommittedRows, DraftSampling
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN, gumbel_noise
from outrider.kernels.rows import RowGroup, Rows

FULL, SLIDING = "full_attention", "sliding_attention"
LAYOUTS = {
    "full": ([FULL, FULL], {}),
    "sliding": ([SLIDING, SLIDING], {"sliding_window": 9, "use_sliding_window": True}),
    "mixed": ([SLIDING, FULL, SLIDING], {"sliding_window": 20, "use_sliding_window": True}),
    "sliding, bidirectional": (
        [SLIDING, SLIDING],
        {"sliding_window": 4, "use_sliding_window": True, "is_causal": False},
    ),
    "full, causal": ([FULL], {"is_causal": True}),
}
ROPES = {
    "default": {"rope_theta": 10000.0},
    "yarn": {
        "rope_theta": 50000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
}


@pytest.fixture(scope="module")
def target():
    return make_target()


def config_of(layout: str, rope: str = "default", kind: str = "DFlashDraftModel", **options):
    types, top = LAYOUTS[layout]
    top = {"layer_types": types, **top, **ROPES[rope]}
    return zlab_config(kind, len(types), top=top, **options)


def public_model(config, tensors, cls=DFlashDraftModel):
    """The public package's model with these weights, in float32."""
    theta = config["rope_theta"]
    rope = {"rope_type": "default", **config.get("rope_scaling", {}), "rope_theta": theta}
    known = {k: v for k, v in config.items() if k not in ("rope_theta", "rope_scaling")}
    model = cls(Qwen3Config(**known, rope_parameters=rope)).float().eval()
    renamed = {
        name + ".weight" if name.endswith("_codebook") else name: tensor
        for name, tensor in tensors.items()
    }
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    assert not unexpected
    assert all("rotary" in name for name in missing)
    return model


def public_block(model, target, context_taps, tip, start_at=0):
    """Final states of the public model's block, prefilled in two pieces through its own cache."""
    count, size = len(context_taps), model.block_size
    ids = torch.tensor([tip] + [model.mask_token_id] * (size - 1))
    scale = model.config.dflash_config.get("input_embedding_scale", 1.0)
    embedded = target.embed(ids) * scale
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    first = count // 2
    with torch.inference_mode():
        positions = torch.arange(first + size)[None]
        model(positions, None, embedded[None], context_taps[None, :first], cache, use_cache=True)
        cache.crop(-size)
        positions = torch.arange(first, count + size)[None]
        return model(
            positions, None, embedded[None], context_taps[None, first:], cache, use_cache=True
        )[0]


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


def random_taps(count, seed=5):
    return torch.randn(count, len(TAPS) * H, generator=torch.Generator().manual_seed(seed))


def session(drafter, taps):
    state = drafter.begin(DraftSampling())
    half = len(taps) // 2
    for start, part in ((0, taps[:half]), (half, taps[half:])):
        drafter.observe([state], [CommittedRows([1] * len(part), start, part)])
    return state


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 7, 33, 150])
def test_equals_the_public_package(tmp_path, target, layout, rope, count):
    config = config_of(layout, rope)
    tensors = block_tensors(config)
    drafter = load(tmp_path, target, config, tensors)
    taps = random_taps(count)
    expected = public_block(public_model(config, tensors), target, taps, tip=5)
    state = session(drafter, taps)
    found = drafter.backbone.forward_round(
        drafter.block_embeddings([5]), _rows(drafter, state), drafter.pool.store
    )
    assert relative(found, expected) < 1e-4
    assert draft(drafter, state).tokens == target.argmax(expected[1:]).tolist()


def _rows(drafter, *states):
    return Rows(
        tuple(
            RowGroup(s.length, drafter.config.block_size, s.cache.pages, s.cache.floor)
            for s in states
        )
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [0, 70])
def test_four_forwards_agree(tmp_path, target, layout, first):
    """Cached round and block forward to the last bit, the oracle to rounding."""
    drafter = load(tmp_path, target, config_of(layout))
    backbone, taps = drafter.backbone, random_taps(37)
    block = drafter.block_embeddings([9])
    positions = torch.arange(first, first + 37 + len(block))
    features = backbone.context_features(taps)
    by_block = backbone.forward_block(features, block, positions)
    by_oracle = backbone.forward_oracle(taps, block, positions)
    assert relative(by_block, by_oracle) < 2e-6

    state = drafter.begin(DraftSampling())
    state.skip_to(first)
    for start in range(0, 37, 5):
        part = taps[start : start + 5]
        drafter.observe([state], [CommittedRows([1] * len(part), first + start, part)])
    by_round = backbone.forward_round(block, _rows(drafter, state), drafter.pool.store)
    assert torch.equal(by_round, by_block)


def test_block_over_no_context(tmp_path, target):
    drafter = load(tmp_path, target, config_of("mixed"))
    block = drafter.block_embeddings([9])
    empty, positions = torch.empty(0, len(TAPS) * H), torch.arange(40, 40 + len(block))
    found = drafter.backbone.forward_block(torch.empty(0, H), block, positions)
    assert relative(found, drafter.backbone.forward_oracle(empty, block, positions)) < 2e-6


def test_block_positions_must_be_consecutive(tmp_path, target):
    drafter = load(tmp_path, target, config_of("full"))
    block = drafter.block_embeddings([9])
    with pytest.raises(ValueError, match="consecutive"):
        drafter.backbone.forward_block(torch.zeros(1, H), block, torch.arange(7) * 2)


def test_ragged_batch_equals_alone(tmp_path, target):
    drafter = load(tmp_path, target, config_of("mixed"))
    states = [session(drafter, random_taps(count, seed=count)) for count in (3, 64, 31, 100, 1)]
    tips, lengths = [1, 2, 3, 4, 5], [5, 1, 3, 2, 4]
    together = drafts(drafter, states, tips, lengths)
    for state, tip, length, proposal in zip(states, tips, lengths, together, strict=True):
        assert proposal.tokens == draft(drafter, state, tip, length).tokens
        assert proposal.tokens == draft(drafter, state, tip).tokens[:length]
    alone = [session(drafter, random_taps(count, seed=count)) for count in (3, 64)]
    block = drafter.block_embeddings([1, 2])
    both = drafter.backbone.forward_round(block, _rows(drafter, *alone), drafter.pool.store)
    one = drafter.backbone.forward_round(block[6:], _rows(drafter, alone[1]), drafter.pool.store)
    assert torch.equal(both[6:], one)


def test_batched_ingest_equals_alone(tmp_path, target):
    drafter = load(tmp_path, target, config_of("full"))
    taps = [random_taps(count, seed=count) for count in (3, 40, 17)]
    states = [drafter.begin(DraftSampling()) for _ in taps]
    drafter.observe(states, [CommittedRows([1] * len(t), 0, t) for t in taps])
    for state, t in zip(states, taps, strict=True):
        assert draft(drafter, state).tokens == draft(drafter, session(drafter, t)).tokens


def test_learned_mask_embedding(tmp_path, target):
    """A mask vector equal to a token's embedding drafts what that token drafts."""
    config = config_of("full")
    tensors = block_tensors(config)
    plain = load(tmp_path / "token", target, config, tensors)
    mask = target.embed(torch.tensor([V - 1]))
    for shape in ((H,), (1, H)):
        del config["dflash_config"]["mask_token_id"]
        learned = load(
            tmp_path / str(len(shape)),
            target,
            config,
            {**tensors, "mask_embedding": mask.reshape(shape)},
        )
        config["dflash_config"]["mask_token_id"] = V - 1
        assert learned.config.learned_mask
        assert draft(learned, session(learned, random_taps(9))) == draft(
            plain, session(plain, random_taps(9))
        )


class TestPlantedFaults:
    """Each silent fault of a wrong port must show in the parity that guards against it."""

    def error(self, tmp_path, target, spoil):
        config = config_of("mixed")
        tensors = block_tensors(config)
        drafter = load(tmp_path, target, config, tensors)
        taps = random_taps(33)
        expected = public_block(public_model(config, tensors), target, taps, tip=5)
        taps, positions = spoil(drafter, taps, torch.arange(33 + 6))
        return relative(
            drafter.backbone.forward_oracle(taps, drafter.block_embeddings([5]), positions),
            expected,
        )

    def test_sound(self, tmp_path, target):
        assert self.error(tmp_path, target, lambda _, taps, at: (taps, at)) < 1e-5

    def test_taps_of_the_wrong_layers(self, tmp_path, target):
        def spoil(_, taps, at):
            return taps.reshape(33, len(TAPS), H).roll(1, 1).reshape(33, -1), at

        assert self.error(tmp_path, target, spoil) > 1e-2

    def test_rows_shifted_by_one(self, tmp_path, target):
        assert self.error(tmp_path, target, lambda _, taps, at: (taps.roll(1, 0), at)) > 1e-2

    def test_rotary_off_by_one(self, tmp_path, target):
        def spoil(_, taps, at):
            return taps, torch.cat([at[:33], at[33:] + 1])

        assert self.error(tmp_path, target, spoil) > 1e-3

    def test_norm_skipped(self, tmp_path, target):
        def spoil(drafter, taps, at):
            backbone = drafter.backbone
            backbone._context = replace(backbone._context, norm=torch.ones(H))
            return taps, at

        assert self.error(tmp_path, target, spoil) > 1e-2

    def test_context_through_the_input_norm(self, tmp_path, target):
        def spoil(drafter, taps, at):
            backbone = drafter.backbone
            plain = backbone.context_features

            def normed(rows):
                return backbone.kernels.rms_norm(
                    plain(rows), backbone.weights.layers[0].attn_norm, 1e-6
                )

            backbone.context_features = normed
            return taps, at

        assert self.error(tmp_path, target, spoil) > 1e-2


DFLASH2 = {
    "conv_kernel_size": 3,
    "conv_group_size": 16,
    "selector_rank": 8,
    "selector_top_k": 10,
    "output_multiplier": 0.7,
    "final_logit_softcapping": 5.0,
    "input_embedding_scale": 1.5,
}


class TestDFlash2:
    """DFlash2's convolutions and selector against the public package."""

    def make(self, tmp_path, target, layout="sliding, bidirectional"):
        config = config_of(layout, kind="DFlash2DraftModel", **DFLASH2)
        tensors = block_tensors(config)
        random = torch.Generator().manual_seed(8)
        for index in range(config["num_hidden_layers"]):
            for name in ("attention_conv", "mlp_conv"):
                prefix = f"layers.{index}.{name}."
                tensors[prefix + "base_kernel"] = torch.randn(2, 3, H, generator=random) * 0.5
                tensors[prefix + "kernel_projection.weight"] = (
                    torch.randn(6 * H // 16, H, generator=random) * 0.05
                )
        for name in ("predecessor_codebook", "successor_codebook"):
            tensors["candidate_selector." + name] = torch.randn(V, 8, generator=random)
        tensors["candidate_selector.hidden_projection.weight"] = (
            torch.randn(8, H, generator=random) * 0.3
        )
        return load(tmp_path, target, config, tensors), public_model(
            config, tensors, DFlash2DraftModel
        )

    @pytest.mark.parametrize("layout", ["sliding, bidirectional", "mixed"])
    @pytest.mark.parametrize("count", [1, 40])
    def test_states_and_drafts(self, tmp_path, target, layout, count):
        drafter, public = self.make(tmp_path, target, layout)
        taps = random_taps(count)
        state = session(drafter, taps)
        expected = public_block(public, target, taps, tip=5)
        found = drafter.backbone.forward_round(
            drafter.block_embeddings([5]), _rows(drafter, state), drafter.pool.store
        )
        assert relative(found, expected) < 1e-4
        positions = torch.arange(count + 6)
        oracle = drafter.backbone.forward_oracle(taps, drafter.block_embeddings([5]), positions)
        assert relative(found, oracle) < 2e-6
        features = drafter.backbone.context_features(taps)
        by_block = drafter.backbone.forward_block(
            features, drafter.block_embeddings([5]), positions
        )
        assert torch.equal(found, by_block)

        head = torch.nn.Linear(H, V, bias=False)
        head.weight.data = target.embed(torch.arange(V))
        with torch.inference_mode():
            tokens, _, _ = public.propose(expected[None, 1:], torch.tensor([5]), head, 0.0)
        assert draft(drafter, state).tokens == tokens[0].tolist()

    def test_batch_equals_alone(self, tmp_path, target):
        drafter, _ = self.make(tmp_path, target)
        states = [session(drafter, random_taps(count, count)) for count in (3, 50, 12)]
        together = drafts(drafter, states, [1, 2, 3], [5, 2, 4])
        for state, tip, length, proposal in zip(
            states, [1, 2, 3], [5, 2, 4], together, strict=True
        ):
            assert proposal.tokens == draft(drafter, state, tip, length).tokens

    def test_convolution_does_not_cross_blocks(self, tmp_path, target):
        drafter, _ = self.make(tmp_path, target)
        states = [session(drafter, random_taps(8, seed)) for seed in (1, 2)]
        block = drafter.block_embeddings([1, 2])
        both = drafter.backbone.forward_round(block, _rows(drafter, *states), drafter.pool.store)
        second = drafter.backbone.forward_round(
            block[6:], _rows(drafter, states[1]), drafter.pool.store
        )
        assert torch.equal(both[6:], second)

    def test_drawn_distribution_lives_on_the_candidates(self, tmp_path, target):
        drafter, _ = self.make(tmp_path, target)
        state = drafter.begin(DraftSampling(1.0, 3, STREAM_DRAFT))
        drafter.observe([state], [CommittedRows([1] * 9, 0, random_taps(9))])
        proposal = draft(drafter, state)
        q = proposal.probabilities
        assert q.shape == (5, V)
        assert torch.allclose(q.sum(-1), torch.ones(5))
        assert bool((q.count_nonzero(-1) <= 10).all())
        assert all(q[row, token] > 0 for row, token in enumerate(proposal.tokens))

    @pytest.mark.parametrize("stream", [STREAM_DRAFT, STREAM_TOKEN])
    def test_draws_with_the_noise_of_each_tokens_position(self, tmp_path, target, stream):
        """What is drawn from is known on the drafter's stream, and is the same on the target's."""
        drafter, _ = self.make(tmp_path, target)
        before, row_tokens = 5, []
        state = drafter.begin(DraftSampling(0.8, 3, stream))
        drafter.observe([state], [CommittedRows([1] * 9, 0, random_taps(9))])
        hidden = drafter.backbone.forward_round(
            drafter.block_embeddings([5]), _rows(drafter, state), drafter.pool.store
        )[1:]
        unary, ids = drafter.selector.candidates(drafter.head.logits(hidden))
        for row, state_of in enumerate(drafter.selector.project(hidden)):
            scores = drafter.selector.scores(unary[row], ids[row], state_of, before) / 0.8
            noise = gumbel_noise(3, stream, 9 + 1 + row, ids[row].numpy())
            before = int(ids[row][int((scores + torch.from_numpy(noise)).argmax())])
            row_tokens.append(before)
        assert draft(drafter, state).tokens == row_tokens
