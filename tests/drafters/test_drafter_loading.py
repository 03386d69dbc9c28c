"""Every published layout read back, and every refusal in one line that names both values."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from drafter_toys import (
    LAYERS,
    TAPS,
    H,
    V,
    begin,
    block_tensors,
    draft,
    fresh_draft,
    load,
    make_target,
    mtp_config,
    mtp_tensors,
    write_folder,
    zlab_config,
)
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from outrider.drafters.base import DraftSampling
from outrider.drafters.block.dflash import DFlashDrafter
from outrider.drafters.block.dspark import DSparkDrafter
from outrider.drafters.layouts import default_taps
from outrider.drafters.loading import load_drafter
from outrider.drafters.mtp.drafter import MtpDrafter
from outrider.kernels.reference import ReferenceKernels
from outrider.types.errors import DrafterError


@pytest.fixture(scope="module")
def target():
    return make_target()


def deepspec_config(**options):
    """DeepSpec's layout: everything at the top."""
    config = zlab_config("Qwen3DSparkModel", 2)
    del config["dflash_config"]
    return {
        **config,
        "mask_token_id": V - 1,
        "target_layer_ids": list(TAPS),
        "block_size": 6,
        "num_anchors": 512,
        "markov_rank": 8,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        **options,
    }


def speculators_config(kind="dflash", layer_types=None, **options):
    """speculators' layout: the layers nested, taps counted with the embedding."""
    nested = zlab_config(layers=len(layer_types or "ab"))
    for name in ("architectures", "dflash_config", "num_target_layers"):
        del nested[name]
    if layer_types:
        nested |= {"layer_types": layer_types, "sliding_window": 9, "use_sliding_window": True}
    return {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": kind,
        "transformer_layer_config": nested,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in TAPS],
        "draft_vocab_size": V,
        "block_size": 6,
        "mask_token_id": V - 1,
        **options,
    }


class TestLayouts:
    def test_zlab(self, tmp_path, target):
        drafter = load(tmp_path, target, zlab_config())
        assert isinstance(drafter, DFlashDrafter)
        assert (drafter.name, drafter.taps, drafter.max_draft) == ("dflash", TAPS, 5)

    def test_zlab_old_with_options_at_the_top(self, tmp_path, target):
        config = zlab_config()
        tensors = block_tensors(config)
        new = load(tmp_path / "new", target, config, tensors)
        old_config = zlab_config(top={"block_size": 6})
        del old_config["dflash_config"]["block_size"]
        old = load(tmp_path / "old", target, old_config, tensors)
        assert old.config == new.config

    def test_zlab_without_taps(self, tmp_path, target):
        config = zlab_config(layers=3)
        del config["dflash_config"]["target_layer_ids"]
        tensors = block_tensors(config)
        assert load(tmp_path, target, config, tensors).taps == default_taps(LAYERS, 3)

    @pytest.mark.parametrize(
        ("layers", "taps"),
        [
            (36, (1, 9, 17, 25, 33)),
            (24, (1, 6, 11, 16, 21)),
            (64, (1, 16, 31, 46, 61)),
            (30, (1, 8, 14, 20, 27)),
        ],
    )
    def test_default_taps(self, layers, taps):
        assert default_taps(layers, 5) == taps
        assert default_taps(layers, 1) == (layers // 2,)

    def test_deepspec(self, tmp_path, target):
        config = deepspec_config()
        tensors = block_tensors(config)
        drafter = load(tmp_path / "lean", target, config, tensors)
        assert isinstance(drafter, DSparkDrafter)
        assert (drafter.name, drafter.max_draft, drafter.config.row_shift) == ("dspark", 6, 1)
        assert drafter.markov is not None
        assert drafter.confidence is not None
        copies = {"embed_tokens.weight": torch.ones(V, H), "lm_head.weight": torch.ones(V, H)}
        frozen = load(tmp_path / "copies", target, config, {**tensors, **copies})
        assert fresh_draft(frozen, 20) == fresh_draft(drafter, 20)

    def test_deepspec_dflash_block7_is_shifted(self, tmp_path, target):
        config = deepspec_config(markov_rank=0, enable_confidence_head=False)
        del config["markov_head_type"]
        tensors = block_tensors(config)
        drafter = load(tmp_path / "deepspec", target, config, tensors)
        assert (drafter.config.row_shift, drafter.max_draft) == (1, 6)
        shifted = load(tmp_path / "zlab", target, zlab_config(sample_from_anchor=True), tensors)
        assert fresh_draft(drafter, 20) == fresh_draft(shifted, 20)

    @pytest.mark.parametrize(
        ("kind", "more"),
        [("DSparkDraftModel", {}), ("DFlashDraftModel", {"projector_type": "dspark"})],
    )
    @pytest.mark.parametrize("prefix", ["", "logit_head."])
    def test_specforge_and_vllm_aliases(self, tmp_path, target, kind, more, prefix):
        config = deepspec_config()
        tensors = block_tensors(config)
        deepspec = load(tmp_path / "deepspec", target, config, tensors)
        names = ("markov_rank", "markov_head_type", "enable_confidence_head")
        options = {name: config[name] for name in (*names, "confidence_head_with_markov")}
        renamed = {
            prefix + name if name.startswith(("markov", "confidence")) else name: tensor
            for name, tensor in tensors.items()
        }
        alias = load(tmp_path / "alias", target, zlab_config(kind, **options, **more), renamed)
        assert alias.config == deepspec.config
        assert fresh_draft(alias, 20) == fresh_draft(deepspec, 20)

    def test_speculators(self, tmp_path, target):
        config = speculators_config()
        tensors = block_tensors(config)
        drafter = load(tmp_path / "speculators", target, config, tensors)
        zlab = load(tmp_path / "zlab", target, zlab_config(), tensors)
        assert drafter.taps == zlab.taps == TAPS
        assert fresh_draft(drafter, 20) == fresh_draft(zlab, 20)

    @pytest.mark.parametrize(("value", "drafts"), [(True, 6), (False, 5)])
    def test_speculators_sample_from_anchor(self, tmp_path, target, value, drafts):
        config = speculators_config(sample_from_anchor=value)
        assert load(tmp_path, target, config).max_draft == drafts

    def test_speculators_dspark(self, tmp_path, target):
        config = speculators_config("dspark", markov_rank=8)
        drafter = load(tmp_path, target, config)
        assert isinstance(drafter, DSparkDrafter)
        assert drafter.max_draft == 6

    @pytest.mark.parametrize("non_causal", [False, True])
    def test_speculators_sliding_layers(self, tmp_path, target, non_causal):
        config = speculators_config(
            layer_types=["sliding_attention", "full_attention"],
            sliding_window_non_causal=non_causal,
        )
        drafter = load(tmp_path, target, config)
        assert drafter.config.windows == (9, None)
        assert drafter.config.causal == (not non_causal, False)
        assert drafter.reach is None

    @pytest.mark.parametrize("own", [False, True])
    def test_trimmed_vocabulary(self, tmp_path, target, own):
        """d2t holds offsets; a trimmed head of the file's own is used, else the target's rows."""
        ids = torch.arange(3, V, 2)
        config = speculators_config(draft_vocab_size=len(ids))
        tensors = {**block_tensors(config), "d2t": ids - torch.arange(len(ids))}
        tensors["t2d"] = torch.isin(torch.arange(V), ids)
        if own:
            tensors["lm_head.weight"] = target.embed(ids).flip(0)
        drafter = load(tmp_path, target, config, tensors)
        state = begin(drafter, 20)
        hidden = drafter._hidden(_requests(drafter, state))[0]
        scores = target.logits(hidden)[:, ids]
        best = (scores.flip(-1) if own else scores).argmax(-1)
        tokens = draft(drafter, state).tokens
        assert tokens == ids[best].tolist()
        assert set(tokens) <= set(ids.tolist())

    def test_causality_precedence(self, tmp_path, target):
        sliding = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}
        found = {}
        for name, top, options in [
            ("layers", {}, {}),
            ("inner", {}, {"causal": True}),
            ("top", {"is_causal": False}, {"causal": True}),
        ]:
            config = zlab_config(top={**sliding, **top}, **options)
            found[name] = load(tmp_path / name, target, config).config.causal
        assert found == {"layers": (True, False), "inner": (True, True), "top": (False, False)}

    def test_windows(self, tmp_path, target):
        cases = {
            "swa": ({"layer_types": None}, {"use_swa": True, "swa_window_size": 7}, (7, 7)),
            "off": (
                {
                    "layer_types": ["sliding_attention"] * 2,
                    "sliding_window": 9,
                    "use_sliding_window": False,
                },
                {},
                (None, None),
            ),
            "upper": (
                {
                    "layer_types": None,
                    "sliding_window": 9,
                    "use_sliding_window": True,
                    "max_window_layers": 1,
                },
                {},
                (None, 9),
            ),
        }
        for name, (top, options, windows) in cases.items():
            drafter = load(tmp_path / name, target, zlab_config(top=top, **options))
            assert drafter.config.windows == windows

    def test_attention_biases(self, tmp_path, target):
        config = zlab_config(layers=1, top={"attention_bias": True})
        tensors = block_tensors(config)
        sizes = {"q": 64, "k": 32, "v": 32, "o": H}
        for name, size in sizes.items():
            tensors[f"layers.0.self_attn.{name}_proj.bias"] = torch.randn(size)
        drafter = load(tmp_path, target, config, tensors)
        backbone, taps = drafter.backbone, torch.randn(9, len(TAPS) * H)
        block, positions = drafter.block_embeddings([3]), torch.arange(15)
        found = backbone.forward_block(backbone.context_features(taps), block, positions)
        oracle = backbone.forward_oracle(taps, block, positions)
        assert torch.allclose(found, oracle, atol=1e-5)

    def test_bfloat16(self, tmp_path, target):
        config = zlab_config()
        tensors = {name: t.bfloat16() for name, t in block_tensors(config).items()}
        rounded = {name: t.float() for name, t in tensors.items()}
        half = load(tmp_path / "half", target, config, tensors)
        whole = load(tmp_path / "whole", target, config, rounded)
        assert fresh_draft(half, 20) == fresh_draft(whole, 20)

    @pytest.mark.parametrize("form", ["Q8_0", "Q4_1", "both"])
    @pytest.mark.parametrize("kind", ["dspark", "mtp"])
    def test_quantised(self, tmp_path, target, kind, form):
        """Matrices in GGUF's block layout equal their dequantised twins."""
        config = mtp_config() if kind == "mtp" else zlab_config("DSparkDraftModel", markov_rank=32)
        tensors = mtp_tensors(config) if kind == "mtp" else block_tensors(config)
        packed, dense = {}, {}
        for name, tensor in tensors.items():
            packed[name] = dense[name] = tensor
            if tensor.ndim == 2 and tensor.shape[1] % 32 == 0 and "w1" not in name:
                used = ("Q8_0" if "q_proj" in name else "Q4_1") if form == "both" else form
                blocks = quantize(tensor.numpy(), GGMLQuantizationType[used])
                packed[name] = torch.from_numpy(np.ascontiguousarray(blocks))
                dense[name] = _dequantized(packed[name], tensor.shape, used)
        declared = "Q4_1" if form == "both" else form
        quantized = {**config, "outrider_quantization": {"format": declared}}
        one = load(tmp_path / "packed", target, quantized, packed)
        other = load(tmp_path / "dense", target, config, dense)
        assert fresh_draft(one, 20) == fresh_draft(other, 20)

    def test_mtp(self, tmp_path, target):
        config = mtp_config(draft_depth=4, zero_centered_norms=True, confidence_threshold=0.1)
        drafter = load(tmp_path, target, config, mtp_tensors(config))
        assert isinstance(drafter, MtpDrafter)
        assert (drafter.name, drafter.max_draft, drafter.taps) == ("mtp", 4, (LAYERS - 1,))


def _dequantized(data, shape, form):
    from outrider.kernels.weights import RawWeight

    return RawWeight("", tuple(shape), form, data).float()


def _requests(drafter, state):
    from outrider.drafters.context.request import CheckedRequest

    return [CheckedRequest(0, state, 5, drafter.max_draft)]


def edited(config, **changes):
    """A configuration with fields changed wherever they stand; None deletes one."""
    config = json.loads(json.dumps(config))
    for name, value in changes.items():
        holder = config
        if name in config.get("dflash_config", {}):
            holder = config["dflash_config"]
        if value is None:
            holder.pop(name)
        else:
            holder[name] = value
    return config


REFUSALS = {
    "hidden size": ({"hidden_size": 32}, ["hidden_size", "32", "64"]),
    "vocabulary": ({"vocab_size": 200}, ["vocab_size", "200", "120"]),
    "target layers": ({"num_target_layers": 30}, ["num_target_layers", "30", "6"]),
    "tap out of range": ({"target_layer_ids": [1, 6]}, ["target_layer_ids", "6", "-1..5"]),
    "tap below": ({"target_layer_ids": [-2]}, ["target_layer_ids", "-2"]),
    "no taps": ({"target_layer_ids": []}, ["target_layer_ids"]),
    "mask id": ({"mask_token_id": 120}, ["mask_token_id", "120"]),
    "mask id missing": ({"mask_token_id": None}, ["mask_token_id", "missing"]),
    "head counts": ({"num_key_value_heads": 3}, ["num_attention_heads", "4", "3"]),
    "odd head": ({"head_dim": 15}, ["head_dim", "15"]),
    "unknown class": ({"architectures": ["EagleModel"]}, ["architectures", "EagleModel"]),
    "no class": ({"architectures": None}, ["architectures", "missing"]),
    "target model": ({"architectures": ["LlamaForCausalLM"]}, ["LlamaForCausalLM", "target model"]),
    "unknown layer type": ({"layer_types": ["full_attention", "mamba"]}, ["layer_types"]),
    "window missing": ({"layer_types": ["sliding_attention"] * 2}, ["sliding_window", "missing"]),
    "activation": ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
    "block too small": ({"block_size": 1}, ["block_size", "1"]),
    "block too large": ({"block_size": 10**9}, ["block_size", "1000000000", "1024"]),
    "wrong type": ({"block_size": "six"}, ["block_size", "six", "integer"]),
    "sinks": ({"attention_sink_bias": True}, ["attention_sink_bias"]),
    "interleaved rotary": ({"is_neox_style": False}, ["is_neox_style", "false", "true"]),
    "width of the taps": ({"target_hidden_size": 32}, ["target_hidden_size", "32", "64"]),
    "projector": ({"projector_type": "domino"}, ["projector_type", "domino"]),
    "draft vocabulary": ({"draft_vocab_size": 500}, ["draft_vocab_size", "500", "120"]),
    "d2t missing": ({"draft_vocab_size": 50}, ["d2t", "missing"]),
    "quantization": (
        {"outrider_quantization": {"format": "Q4_0"}},
        ["outrider_quantization.format", "'Q4_0'", "Q8_0 or Q4_1"],
    ),
}


def refusal(path, target):
    with pytest.raises(DrafterError) as caught:
        load_drafter(path, target, 8)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_positions_that_the_target_does_not_have_take_no_memory(tmp_path, target):
    config = edited(zlab_config(), max_position_embeddings=10**12)
    path = write_folder(tmp_path, config, block_tensors(zlab_config()))
    assert load_drafter(path, target, 8).max_position == target.config.max_position


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_field_and_both_values(tmp_path, target, name):
    changes, words = REFUSALS[name]
    path = write_folder(tmp_path, edited(zlab_config(), **changes), block_tensors(zlab_config()))
    message = refusal(path, target)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mtp_num_hidden_layers": 2}, ["mtp_num_hidden_layers", "2"]),
        ({"target_state": "raw"}, ["target_state", "raw"]),
        ({"draft_depth": 10**9}, ["draft_depth", "1000000000", "1024"]),
        ({"hidden_size": 32}, ["hidden_size", "32", "64"]),
    ],
)
def test_mtp_refusals(tmp_path, target, changes, words):
    path = write_folder(tmp_path, mtp_config(**changes), mtp_tensors(mtp_config()))
    message = refusal(path, target)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "change",
    [
        {"markov_head_type": "lstm"},
        {"confidence_head_with_markov": True, "enable_confidence_head": True, "markov_rank": 0},
    ],
)
def test_head_refusals(tmp_path, target, change):
    config = zlab_config("DSparkDraftModel", **{"markov_rank": 8, **change})
    message = refusal(write_folder(tmp_path, config, block_tensors(zlab_config())), target)
    assert next(iter(change)) in message


def test_missing_and_misshapen_tensors(tmp_path, target):
    tensors = block_tensors(zlab_config())
    name = "layers.1.mlp.down_proj.weight"
    without = {key: tensor for key, tensor in tensors.items() if key != name}
    message = refusal(write_folder(tmp_path / "a", zlab_config(), without), target)
    assert name in message
    assert "missing" in message
    wrong = {**tensors, "fc.weight": torch.zeros(H, H)}
    message = refusal(write_folder(tmp_path / "b", zlab_config(), wrong), target)
    assert all(word in message for word in ("fc.weight", "[64, 64]", "[64, 192]"))


@pytest.mark.parametrize("size", [3 * H // 32 * 18, H, 0])
def test_blocks_of_another_size(tmp_path, target, size):
    """fc has rows of 3 H weights: 204 bytes in Q8_0, 120 in Q4_1."""
    config = {**zlab_config(), "outrider_quantization": {"format": "Q4_1"}}
    tensors = {**block_tensors(config), "fc.weight": torch.zeros((H, size), dtype=torch.uint8)}
    message = refusal(write_folder(tmp_path, config, tensors), target)
    words = ("fc.weight", f"[64, {size}]", "[64, 204] (Q8_0)", "[64, 120] (Q4_1)")
    assert all(word in message for word in words), message


def test_blocks_that_rows_do_not_fill(tmp_path, target):
    config = zlab_config("DSparkDraftModel", markov_rank=40)
    table = torch.zeros((V, 40), dtype=torch.uint8)
    tensors = {**block_tensors(config), "markov_head.markov_w1.weight": table}
    config["outrider_quantization"] = {"format": "Q4_1"}
    message = refusal(write_folder(tmp_path, config, tensors), target)
    assert all(word in message for word in ("markov_w1", "40", "32")), message


def test_blocks_that_are_not_declared(tmp_path, target):
    tensors = block_tensors(zlab_config())
    tensors["fc.weight"] = torch.zeros((H, 120), dtype=torch.uint8)
    message = refusal(write_folder(tmp_path, zlab_config(), tensors), target)
    assert all(word in message for word in ("fc.weight", "[64, 120]", "[64, 192]")), message


def test_d2t_out_of_range(tmp_path, target):
    config = zlab_config(draft_vocab_size=50)
    tensors = {**block_tensors(config), "d2t": torch.full((50,), 100)}
    message = refusal(write_folder(tmp_path, config, tensors), target)
    assert "d2t" in message
    assert "120" in message


def test_folders_that_are_not_drafters(tmp_path, target):
    assert "config.json" in refusal(tmp_path / "nowhere", target)
    (tmp_path / "config.json").write_text("{")
    assert "JSON" in refusal(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps(zlab_config()))
    assert "safetensors" in refusal(tmp_path, target)


def test_truncated_file(tmp_path, target):
    path = write_folder(tmp_path, zlab_config(), block_tensors(zlab_config()))
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert "model.safetensors" in refusal(path, target)


def test_a_drafter_of_another_target(tmp_path):
    """Field-bug kind: a wrong pair must fail at load, not draft at acceptance 1.0."""
    path = write_folder(tmp_path, zlab_config(), block_tensors(zlab_config()))
    assert "num_target_layers" in refusal(path, make_target(layers=5))
    assert "hidden_size" in refusal(path, make_target(hidden=32))
    assert "vocab_size" in refusal(path, make_target(vocab=128))


def test_sampling_reaches_the_state(tmp_path, target):
    sampling = DraftSampling(0.5, 9, 1)
    assert load(tmp_path, target, zlab_config()).begin(sampling).sampling is sampling
    assert isinstance(target.kernels, ReferenceKernels)
