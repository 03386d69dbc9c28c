"""A tiny target whose next token depends on what it said before, and data written by it."""

from __future__ import annotations

import torch

from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.kernels.weights import RawWeight, raw_float
from outrider.train.config import OptimConfig, ShapeConfig
from outrider.train.conversations import Conversations
from outrider.train.decode import LockstepDecoder
from outrider.train.target import TorchTarget

H, LAYERS, V = 64, 4, 96
TAPS = (1, 2)
CONFIG = ModelConfig(
    architecture="llama",
    hidden_size=H,
    intermediate_size=96,
    num_layers=LAYERS,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=V,
    rms_eps=1e-5,
    max_position=256,
    rotary=RotaryConfig(),
    tied=False,
    qkv_bias=False,
    o_bias=False,
    qk_norm=False,
    windows=(None,) * LAYERS,
    eos_ids=(0,),
)
SHAPE = ShapeConfig(layers=2, block=4, taps=TAPS, draft_vocab=V, markov_rank=32)
FAST = OptimConfig(
    steps=250,
    seconds=0.0,
    rows=8,
    anchors=16,
    matrix_lr=1e-2,
    lr=1e-2,
    compile=False,
    graphs=False,
    log_every=10,
    eval_seconds=1e9,
    save_seconds=1e9,
)


def source(seed: int = 0):
    """Random weights; attention and head are strong enough that context decides."""
    random = torch.Generator().manual_seed(seed)

    def tensors(name: str, shape: tuple[int, ...]) -> RawWeight:
        if name.endswith("norm.weight"):
            return raw_float(name, torch.ones(shape))
        scale = 0.8 if "self_attn" in name else 4.0 if name == "lm_head.weight" else 1.0
        return raw_float(name, scale * torch.randn(shape, generator=random) * shape[-1] ** -0.5)

    return tensors


def torch_target(seed: int = 0) -> TorchTarget:
    """The target as the trainer runs it."""
    return TorchTarget(CONFIG, source(seed), torch.device("cpu"), torch.float32)


def written_rows(
    target: TorchTarget, count: int, length: int, seed: int, temperature: float = 0.5
) -> Conversations:
    """Rows that the target writes after random beginnings; ``temperature`` 0 is greedy."""
    torch.manual_seed(seed)
    begin = 4
    decoder = LockstepDecoder(target, count, length, compiled=False)
    ids = torch.randint(1, V, (count, length))
    for position in range(length - 1):
        decoder.position.fill_(position)
        logits = decoder.step(ids[:, position], length)
        logits[:, 0] = -torch.inf
        if position + 1 >= begin:
            noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_min(1e-10)))
            ids[:, position + 1] = (logits + temperature * noise).argmax(-1)
    supervised = torch.zeros(count, length, dtype=torch.bool)
    supervised[:, begin:] = True
    return Conversations(
        ids.int(),
        supervised,
        torch.zeros(count, dtype=torch.uint8),
        torch.full((count,), temperature == 0.0),
        torch.zeros(count, dtype=torch.bool),
    )
