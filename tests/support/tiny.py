"""Tiny random targets: every shape of the dense family, small enough to serve in no time."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.table import Kernels
from outrider.kernels.weights import RawWeight, raw_float
from outrider.models.dense import DenseModel
from outrider.models.target import Target
from outrider.text.pieces import byte_alphabet
from outrider.text.tokenizer import SpecialTokens, Tokenizer

EOS = 0

TINY = ModelConfig(
    architecture="llama",
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=48,
    rms_eps=1e-5,
    max_position=256,
    rotary=RotaryConfig(),
    tied=True,
    qkv_bias=False,
    o_bias=False,
    qk_norm=False,
    windows=(None, None),
    eos_ids=(EOS,),
)

VARIANTS = {
    "llama": TINY,
    "mistral": replace(TINY, architecture="mistral", windows=(24, 24), tied=False),
    "qwen2": replace(TINY, architecture="qwen2", qkv_bias=True, windows=(None, 40)),
    "qwen3": replace(TINY, architecture="qwen3", qk_norm=True, head_dim=16),
}


def random_weight(name: str, shape: tuple[int, ...], scale: float = 0.35) -> RawWeight:
    """A weight that depends on its name and shape alone."""
    seed = int.from_bytes(hashlib.sha256(f"{name}{shape}".encode()).digest()[:6], "big")
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return raw_float(name, noise * scale if len(shape) > 1 else 1.0 + 0.1 * noise)


def tiny_model(
    config: ModelConfig = TINY, kernels: Kernels | None = None, positions: int = 256
) -> DenseModel:
    """A random model; the same one at every call."""
    return DenseModel(config, kernels or ReferenceKernels(), random_weight, positions)


#: Beginnings and ends of characters of two, three and four bytes: é, € and 🤗 among others.
CHARACTER_PARTS = (
    *(b"\xc3", b"\xce", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\xa4"),
    *(b"\xa9", b"\xb1", b"\xac", b"\xa4", b"\x97", b"\x80", b"\x8e"),
)


def tiny_tokenizer(vocab_size: int = 48) -> Tokenizer:
    """Byte-level tokens: an end token, then single characters, then parts of characters."""
    alphabet = byte_alphabet()
    spell = {byte: letter for letter, byte in alphabet.items()}
    parts = ["".join(spell[byte] for byte in part) for part in CHARACTER_PARTS]
    letters = [letter for letter in sorted(alphabet) if letter not in parts]
    spelled = ["<eos>", *letters[: vocab_size - 1 - len(parts)], *parts]
    vocab = {piece: index for index, piece in enumerate(spelled)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("<eos>", special=True)])
    return Tokenizer(backend, "tiny", SpecialTokens(eos_ids=(EOS,)))


def tiny_target(
    config: ModelConfig = TINY, kernels: Kernels | None = None, max_model_len: int = 256
) -> Target:
    """A random target with its tokenizer."""
    model = tiny_model(config, kernels, max_model_len)
    return Target("tiny", "tiny", model, tiny_tokenizer(config.vocab_size), max_model_len)
