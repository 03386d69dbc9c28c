"""Tiny random targets and drafter checkpoints, written to folders as their makers would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.drafters.base import CommittedRows, DraftRequest, DraftSampling
from outrider.drafters.loading import load_drafter
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.table import Kernels
from outrider.kernels.weights import raw_float
from outrider.models.dense import DenseModel

H, F, HEADS, KV, D, V, LAYERS = 64, 96, 4, 2, 16, 120, 6
TAPS = (1, 3, 4)
POSITIONS = 512


def make_target(
    seed: int = 0,
    vocab: int = V,
    hidden: int = H,
    layers: int = LAYERS,
    kernels: Kernels | None = None,
):
    """A random Llama-like target, on the reference kernels by default."""
    config = ModelConfig(
        architecture="llama",
        hidden_size=hidden,
        intermediate_size=F,
        num_layers=layers,
        num_heads=HEADS,
        num_kv_heads=KV,
        head_dim=D,
        vocab_size=vocab,
        rms_eps=1e-5,
        max_position=POSITIONS,
        rotary=RotaryConfig(),
        tied=True,
        qkv_bias=False,
        o_bias=False,
        qk_norm=False,
        windows=(None,) * layers,
        eos_ids=(0,),
    )
    random = torch.Generator().manual_seed(seed)

    def source(name, shape):
        if name.endswith("norm.weight"):
            return raw_float(name, 1 + 0.1 * torch.randn(shape, generator=random))
        return raw_float(name, torch.randn(shape, generator=random) * shape[-1] ** -0.5)

    return DenseModel(config, kernels or ReferenceKernels(), source, POSITIONS)


def zlab_config(kind: str = "DFlashDraftModel", layers: int = 2, **options):
    """A z-lab style config.json; keys in ``top`` go to the top, the rest to dflash_config."""
    top = options.pop("top", {})
    return {
        "architectures": [kind],
        "model_type": "qwen3",
        "hidden_size": H,
        "intermediate_size": F,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "head_dim": D,
        "num_hidden_layers": layers,
        "num_target_layers": LAYERS,
        "vocab_size": V,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": POSITIONS,
        "hidden_act": "silu",
        "attention_bias": False,
        "layer_types": ["full_attention"] * layers,
        "dflash_config": {
            "mask_token_id": V - 1,
            "target_layer_ids": list(TAPS),
            "block_size": 6,
            **options,
        },
        **top,
    }


def layer_tensors(prefix: str, random: torch.Generator, hidden: int = H):
    """Weights of one Qwen3-like layer."""
    shapes = {
        "self_attn.q_proj": (HEADS * D, hidden),
        "self_attn.k_proj": (KV * D, hidden),
        "self_attn.v_proj": (KV * D, hidden),
        "self_attn.o_proj": (hidden, HEADS * D),
        "mlp.gate_proj": (F, hidden),
        "mlp.up_proj": (F, hidden),
        "mlp.down_proj": (hidden, F),
        "self_attn.q_norm": (D,),
        "self_attn.k_norm": (D,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    return {f"{prefix}{name}.weight": _random(shape, random) for name, shape in shapes.items()}


def _random(shape, random):
    noise = torch.randn(shape, generator=random)
    return 1 + 0.2 * noise if len(shape) == 1 else noise * 1.5 * shape[-1] ** -0.5


def block_tensors(config, seed: int = 1):
    """Every tensor that a block drafter's configuration asks for, in the usual names."""
    random = torch.Generator().manual_seed(seed)
    options = {**config, **config.get("dflash_config", {})}
    hidden, vocab = config.get("hidden_size", H), options.get("draft_vocab_size", V)
    tensors = {
        "fc.weight": _random((hidden, len(TAPS) * hidden), random),
        "hidden_norm.weight": _random((hidden,), random),
        "norm.weight": _random((hidden,), random),
    }
    layers = config.get("transformer_layer_config", config)["num_hidden_layers"]
    for index in range(layers):
        tensors |= layer_tensors(f"layers.{index}.", random, hidden)
    rank = options.get("markov_rank", 0)
    if rank:
        tensors["markov_head.markov_w1.weight"] = torch.randn((V, rank), generator=random)
        tensors["markov_head.markov_w2.weight"] = torch.randn((vocab, rank), generator=random)
        kind = options.get("markov_head_type", "vanilla")
        if kind == "gated":
            tensors["markov_head.gate_proj.weight"] = _random((rank, hidden + rank), random)
            tensors["markov_head.gate_proj.bias"] = torch.randn(rank, generator=random)
        if kind == "rnn":
            tensors["markov_head.joint_proj.weight"] = _random(
                (3 * rank, hidden + 2 * rank), random
            )
            tensors["markov_head.joint_proj.bias"] = torch.randn(3 * rank, generator=random)
    if options.get("enable_confidence_head"):
        width = hidden + (rank if options.get("confidence_head_with_markov") else 0)
        tensors["confidence_head.proj.weight"] = 4 * _random((1, width), random)
        tensors["confidence_head.proj.bias"] = torch.randn(1, generator=random)
    return tensors


def mtp_config(**top):
    """Our MTP layout."""
    config = zlab_config("MTPDraftModel", 1)
    del config["dflash_config"], config["layer_types"], config["num_hidden_layers"]
    return {**config, "mtp_num_hidden_layers": 1, **top}


def mtp_tensors(config, seed: int = 2):
    """Every tensor of an MTP head."""
    random = torch.Generator().manual_seed(seed)
    tensors = {
        "mtp.fc.weight": _random((H, 2 * H), random),
        "mtp.pre_fc_norm_embedding.weight": _random((H,), random),
        "mtp.pre_fc_norm_hidden.weight": _random((H,), random),
        "mtp.norm.weight": _random((H,), random),
        **layer_tensors("mtp.layers.0.", random),
    }
    if not config.get("qk_norm", True):
        tensors = {
            name: t for name, t in tensors.items() if "q_norm" not in name and "k_norm" not in name
        }
    return tensors


def write_folder(path: Path, config, tensors) -> Path:
    """Write a checkpoint folder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors"
    )
    return path


def load(path: Path, target, config, tensors=None, pages: int = 64):
    """Write a folder and load it."""
    tensors = block_tensors(config) if tensors is None else tensors
    return load_drafter(write_folder(path, config, tensors), target, pages)


def taps_of(drafter, count: int, seed: int = 3, start: int = 0):
    """Random tapped states of positions start .. start + count - 1; each position has its own."""
    width = len(drafter.taps) * drafter.target.config.hidden_size
    rows = [
        torch.randn(width, generator=torch.Generator().manual_seed(seed * 100_003 + start + i))
        for i in range(count)
    ]
    return torch.stack(rows) if rows else torch.empty(0, width)


def tokens_of(count: int, seed: int = 3, start: int = 0):
    """Tokens of the same positions."""
    return [(seed * 31 + 7 * (start + i) ** 2) % V for i in range(count)]


def feed(drafter, state, count: int, seed: int = 3):
    """Let a state observe ``count`` more rows of stream ``seed``."""
    start = state.length
    rows = CommittedRows(tokens_of(count, seed, start), start, taps_of(drafter, count, seed, start))
    drafter.observe([state], [rows])


def begin(drafter, count: int, seed: int = 3, sampling: DraftSampling | None = None):
    """A state that has observed ``count`` rows of stream ``seed``."""
    state = drafter.begin(DraftSampling() if sampling is None else sampling)
    feed(drafter, state, count, seed)
    return state


def draft(drafter, state, tip: int = 5, length: int | None = None):
    """One session's proposal."""
    return drafts(drafter, [state], [tip], [length or drafter.max_draft])[0]


def drafts(drafter, states, tips, lengths):
    """The proposals of many sessions, drafted together and in full."""
    asked = zip(states, tips, lengths, strict=True)
    return drafter.propose([DraftRequest(state, tip, most, most) for state, tip, most in asked])


def fresh_draft(drafter, count: int, seed: int = 3, tip: int = 5):
    """What a session that observed ``count`` rows in one piece proposes; its pages go back."""
    state = begin(drafter, count, seed)
    proposal = draft(drafter, state, tip)
    state.release()
    return proposal


def same(one, other) -> bool:
    """Equal tokens, and confidences equal up to the rounding of their last step.

    Exponentials of a library may depend on where a value lies in memory.
    """
    close = pytest.approx(other.confidences, rel=1e-5)
    return one.tokens == other.tokens and one.confidences == close
