"""Tiny checkpoints on disk, and the command line run in this process or in its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers

from outrider.cli.main import main
from support.warm import ForkServer

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 32, 64, 4, 2, 8, 2
MARKUP = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB = 256 + len(MARKUP)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    """One token per byte, after the markup."""
    pieces = [*MARKUP, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken(piece, special=True) for piece in MARKUP])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_model(folder: Path) -> Path:
    """A random Llama with tied embeddings."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "eos_token_id": MARKUP.index("<|im_end|>"),
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    random = torch.Generator().manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes().items()}
    tensors = {
        name: torch.randn(shape, generator=random) * 0.4 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


def layer_shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of one layer."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (queries, HIDDEN),
        "self_attn.k_proj.weight": (keys, HIDDEN),
        "self_attn.v_proj.weight": (keys, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, queries),
        "mlp.gate_proj.weight": (INNER, HIDDEN),
        "mlp.up_proj.weight": (INNER, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INNER),
    }


def write_drafter(folder: Path, hidden: int = HIDDEN) -> Path:
    """A random one-layer DFlash drafter for a target of width ``hidden``."""
    folder.mkdir()
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "num_target_layers": LAYERS,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "attention_bias": False,
        "layer_types": ["full_attention"],
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": [0, 1], "block_size": 4},
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        "fc.weight": (hidden, 2 * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "layers.0.self_attn.q_norm.weight": (HEAD_DIM,),
        "layers.0.self_attn.k_norm.weight": (HEAD_DIM,),
    }
    shapes |= {
        f"layers.0.{name}": tuple(hidden if size == HIDDEN else size for size in shape)
        for name, shape in layer_shapes().items()
    }
    random = torch.Generator().manual_seed(4)
    tensors = {
        name: torch.randn(shape, generator=random) * 0.3 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("cli") / "tiny"))


@pytest.fixture(scope="session")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_drafter(tmp_path_factory.mktemp("cli") / "drafter"))


@pytest.fixture(scope="session")
def foreign_drafter(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_drafter(tmp_path_factory.mktemp("cli") / "foreign", hidden=2 * HIDDEN))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    def json(self) -> object:
        """All of standard output as one JSON value."""
        return json.loads(self.out)


Outrider = Callable[..., Ended]


@pytest.fixture
def outrider(capsys: pytest.CaptureFixture[str]) -> Outrider:
    """Run a command in this process."""

    def run(*arguments: object) -> Ended:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Starts commands in processes of their own, which need not import anything."""
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def process(server: ForkServer) -> Outrider:
    """Run a command in a process of its own, as a user does."""

    def run(*arguments: object, stdin: str = "") -> Ended:
        command = server.start(
            [str(argument) for argument in arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        out, errors = command.communicate(stdin.encode())
        return Ended(command.wait(), out.decode(), errors.decode())

    return run
