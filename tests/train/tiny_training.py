"""A tiny target that speaks a tiny language, and conversations written by it.

The language: a row begins with a key and a symbol; each next symbol follows the last one by a
permutation that the key chooses, now and then by chance. So context decides, through the target's
attention, and drafting several symbols takes more than the last one.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.kernels.weights import RawWeight, raw_float
from outrider.train.config import GenerateConfig, OptimConfig, ShapeConfig
from outrider.train.data.chat_frame import FREE, Frame, Opening
from outrider.train.data.conversations import Conversations
from outrider.train.data.decoder import LockstepDecoder
from outrider.train.fitting.evaluation import evaluate
from outrider.train.fitting.trainer import Trainer
from outrider.train.networks.heads import trimmed_head
from outrider.train.networks.network import new_network
from outrider.train.networks.target import TorchTarget, decoder_layer, rms_norm

H, LAYERS, KEYS, V = 64, 4, 8, 48
LENGTH, BEGIN = 32, 3
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
    steps=120,
    seconds=0.0,
    rows=16,
    anchors=12,
    matrix_lr=1e-2,
    lr=1e-2,
    weight_decay=0.0,
    compile=False,
    graphs=False,
    log_every=10,
    eval_seconds=1e9,
    save_seconds=1e9,
)

#: A frame of made-up tokens, and how to write conversations within it.
END = 0
FRAME = Frame(
    prefix=(1, 2, 3),
    header=(4, 5),
    again=(6, 7),
    end=END,
    openers=((FREE,), (Opening((8, 9), whole=False), Opening((10,), whole=False))),
    follow_ups=(FREE, Opening((11,), whole=False)),
)
SMALL = GenerateConfig(
    samples=24,
    batch=12,
    length=64,
    user_tokens=6,
    min_room=12,
    min_supervised=1,
    key_step=16,
    seed=4,
)


def source(seed: int = 0):
    """Random weights under the names of a checkpoint."""
    random = torch.Generator().manual_seed(seed)

    def tensors(name: str, shape: tuple[int, ...]) -> RawWeight:
        if name.endswith("norm.weight"):
            return raw_float(name, torch.ones(shape))
        return raw_float(name, torch.randn(shape, generator=random) * shape[-1] ** -0.5)

    return tensors


def torch_target(seed: int = 0) -> TorchTarget:
    """A target with random weights."""
    return TorchTarget(CONFIG, source(seed), torch.device("cpu"), torch.float32)


def language(rows: int, seed: int, chance: float = 0.1) -> Tensor:
    """Rows of the language, int64 [rows, LENGTH]."""
    random = torch.Generator().manual_seed(seed)
    first = KEYS + 1
    rules = torch.Generator().manual_seed(99)
    follow = torch.stack([torch.randperm(V - first, generator=rules) for _ in range(KEYS)])
    key = torch.randint(KEYS, (rows,), generator=random)
    symbol = torch.randint(V - first, (rows,), generator=random)
    columns = [key + 1, symbol + first]
    while len(columns) < LENGTH:
        other = torch.randint(V - first, (rows,), generator=random)
        lucky = torch.rand(rows, generator=random) < chance
        symbol = torch.where(lucky, other, follow[key, symbol])
        columns.append(symbol + first)
    return torch.stack(columns, 1)


@lru_cache(maxsize=1)
def speaking_target(steps: int = 200) -> TorchTarget:
    """A target that has learnt the language."""
    target = torch_target()
    weights = [t for layer in target.layers for t in layer if t is not None]
    weights += [target.embedding, target.head, target.norm]
    optimiser = torch.optim.AdamW([w.requires_grad_() for w in weights], lr=3e-3)
    for step in range(steps):
        ids = language(16, step)
        x = F.embedding(ids, target.embedding)
        for layer in target.layers:
            x = decoder_layer(x, layer, target.shape, target.angles(LENGTH), None)
        logits = F.linear(rms_norm(x, target.norm, CONFIG.rms_eps), target.head)
        loss = F.cross_entropy(logits[:, 1:-1].flatten(0, 1), ids[:, 2:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for weight in weights:
        weight.requires_grad_(False)
    return target


def written_rows(target: TorchTarget, count: int, seed: int, temperature: float) -> Conversations:
    """Rows that the target writes after a key and two symbols; ``temperature`` 0 is greedy."""
    torch.manual_seed(seed)
    decoder = LockstepDecoder(target, count, LENGTH, compiled=False)
    ids = language(count, 10_000 + seed)
    for position in range(LENGTH - 1):
        decoder.position.fill_(position)
        logits = decoder.step(ids[:, position], LENGTH)
        logits[:, 0] = -torch.inf
        if position + 1 >= BEGIN:
            noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_min(1e-10)))
            ids[:, position + 1] = (logits + temperature * noise).argmax(-1)
    supervised = torch.zeros(count, LENGTH, dtype=torch.bool)
    supervised[:, BEGIN:] = True
    return Conversations(
        ids.int(),
        supervised,
        torch.zeros(count, dtype=torch.uint8),
        torch.full((count,), temperature == 0.0),
        torch.zeros(count, dtype=torch.bool),
    )


@lru_cache(maxsize=1)
def training_rows(target: TorchTarget) -> Conversations:
    """What ``trained`` networks learn from; nobody writes to it."""
    return written_rows(target, 768, 1, 1.0)


def evaluated(network, target: TorchTarget, taps=None):
    """Acceptance of real rounds over greedy rows; ``taps`` feeds other layers than trained."""
    head = trimmed_head(target, torch.arange(V))
    rows = written_rows(target, 48, 2, 0.0)
    return evaluate(network, target, head, rows, taps or network.taps, ["all"], 8).overall


def trained(kind, target: TorchTarget, folder: Path, shape=SHAPE, optim=FAST):
    """A network after the fast schedule, and its trainer."""
    torch.manual_seed(0)
    network = new_network(kind, CONFIG, shape)
    head = trimmed_head(target, torch.arange(V))
    network.warm_start(target, layers=False)
    rows = training_rows(target)
    torch.manual_seed(1)
    trainer = Trainer(network, target, head, rows, optim, folder)
    trainer.run()
    return network, trainer
