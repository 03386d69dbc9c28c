"""The model configuration that a GGUF file describes."""

from __future__ import annotations

import logging
import math
from typing import Final

import torch

from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.config.sizes import MAX_LAYERS, MAX_POSITIONS, MAX_ROWS, MAX_WIDTH
from outrider.loaders.context import scaled
from outrider.loaders.fields import Fields
from outrider.loaders.gguf_reader import GgufFile
from outrider.loaders.hf_config import check_keys, read_eps
from outrider.types.errors import ModelError

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
DEFAULT_THETA: Final = 10000.0

_LOG: Final = logging.getLogger("outrider")

ROPE_FACTORS: Final = "rope_freqs.weight"

#: The file stores only the frequency factors of llama3 scaling. Every published model derives
#: them from these two constants, and from this context length unless the file names another.
LLAMA3_LOW: Final = 1.0
LLAMA3_HIGH: Final = 4.0
LLAMA3_ORIGINAL: Final = 8192
FACTOR_TOLERANCE: Final = 1e-4

#: Keys, after the architecture, of mechanisms that these decoders do not have.
FOREIGN: Final = (
    "attention.scale",
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
)


def metadata_fields(file: GgufFile) -> Fields:
    """Return the metadata for reading by name and type."""
    return Fields(file.source, file.metadata)


def read_config(file: GgufFile) -> ModelConfig:
    """Return the configuration of a file, without its special tokens.

    Raises:
        ModelError: an unknown architecture, a part of a split model, a missing or impossible
            value, or a mechanism that these decoders do not have.
    """
    fields = metadata_fields(file)
    if fields.integer("split.count", 1) > 1:
        raise ModelError(
            f"{file.source}: is one of {fields.integer('split.count')} parts of a split model; "
            "merge them into one file (llama-gguf-split --merge)"
        )
    arch = fields.choice("general.architecture", ARCHITECTURES)
    _refuse_foreign(fields, arch)
    hidden = fields.integer(f"{arch}.embedding_length", low=1, high=MAX_WIDTH)
    layers = fields.integer(f"{arch}.block_count", low=1, high=MAX_LAYERS)
    heads = _of_all_layers(fields, f"{arch}.attention.head_count", layers)
    kv_heads = _of_all_layers(fields, f"{arch}.attention.head_count_kv", layers, heads)
    if heads % kv_heads:
        raise fields.error(f"{arch}.attention.head_count_kv", f"a divisor of {heads} heads")
    head_dim = _head_dim(fields, arch, hidden, heads)
    check_keys(fields, layers * kv_heads * head_dim)
    rotary = _rotary(file, fields, arch, head_dim)
    trained = fields.integer(f"{arch}.context_length", low=1, high=MAX_POSITIONS)
    return ModelConfig(
        architecture=arch,
        hidden_size=hidden,
        intermediate_size=_of_all_layers(fields, f"{arch}.feed_forward_length", layers),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_vocab_size(file, fields, arch, hidden),
        rms_eps=read_eps(fields, f"{arch}.attention.layer_norm_rms_epsilon"),
        max_position=scaled(fields, trained, rotary),
        rotary=rotary,
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=arch == "qwen3",
        windows=_windows(fields, arch, layers),
        eos_ids=(),
    )


def _refuse_foreign(fields: Fields, arch: str) -> None:
    """Refuse mechanisms that would otherwise be left out in silence."""
    for key in FOREIGN:
        if fields.has(f"{arch}.{key}"):
            raise fields.error(f"{arch}.{key}", f"absent: this {arch} decoder has no such step")
    if fields.integer(f"{arch}.expert_count", 0):
        raise fields.error(f"{arch}.expert_count", "0: mixtures of experts are not supported")


def _head_dim(fields: Fields, arch: str, hidden: int, heads: int) -> int:
    """Width of one head; keys, values and the rotated part must all have it."""
    head_dim = fields.integer(f"{arch}.attention.key_length", None, low=2, high=MAX_WIDTH)
    if head_dim is None:
        if hidden % heads:
            raise fields.error(f"{arch}.attention.head_count", f"a divisor of width {hidden}")
        head_dim = hidden // heads
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(f"{arch}.{key}", head_dim) != head_dim:
            raise fields.error(f"{arch}.{key}", f"the head width {head_dim}")
    if head_dim % 2:
        raise ModelError(f"{fields.source}: the head width must be even, not {head_dim}")
    return head_dim


def _of_all_layers(fields: Fields, key: str, layers: int, default: int | None = None) -> int:
    """A size that every layer has; a file may list it layer by layer."""
    value = fields.value(key)
    if isinstance(value, list):
        each = set(fields.integers(key))
        if len(value) < layers or len(each) != 1:
            raise fields.error(key, f"the same in each of {layers} layers")
        fields = Fields(fields.source, {key: each.pop()})
    if default is None:
        return fields.integer(key, low=1, high=MAX_ROWS)
    return fields.integer(key, default, low=1, high=MAX_ROWS)


def _vocab_size(file: GgufFile, fields: Fields, arch: str, hidden: int) -> int:
    """Rows of the embedding, whatever the metadata says."""
    entry = file.tensors.get("token_embd.weight")
    if entry is None:
        raise ModelError(f"{file.source}: tensor token_embd.weight is missing")
    if len(entry.shape) != 2 or entry.shape[1] != hidden:
        raise ModelError(
            f"{file.source}: tensor token_embd.weight has shape {list(entry.shape)}, "
            f"expected [vocabulary, {hidden}]"
        )
    rows = entry.shape[0]
    stated = fields.integer(f"{arch}.vocab_size", rows)
    if stated != rows:
        _LOG.warning(
            "%s: %s.vocab_size is %d, but the embedding has %d rows; these are the vocabulary",
            file.source,
            arch,
            stated,
            rows,
        )
    return rows


def _windows(fields: Fields, arch: str, layers: int) -> tuple[int | None, ...]:
    """Windows per layer. Only Mistral's, which covers every layer, can be stored in such a file."""
    key = f"{arch}.attention.sliding_window"
    window = fields.integer(key, 0, low=0, high=MAX_POSITIONS)
    if window and arch != "llama":
        raise fields.error(key, f"absent: the file does not say which {arch} layers have a window")
    return (window or None,) * layers


def _rotary(file: GgufFile, fields: Fields, arch: str, head_dim: int) -> RotaryConfig:
    """Rotary parameters, from the metadata and from the tensor of frequency factors."""
    theta = fields.number(f"{arch}.rope.freq_base", DEFAULT_THETA, above=1.0)
    scaling = f"{arch}.rope.scaling"
    factor = fields.number(f"{scaling}.factor", None)
    if factor is None:
        factor = fields.number(f"{arch}.rope.scale_linear", 1.0)
    factor = factor or 1.0  # llama.cpp writes and reads zero for no scaling
    implied = "none" if factor == 1.0 else "linear"
    kind = fields.choice(f"{scaling}.type", ("none", "linear", "yarn"), implied)
    if factor < 1.0:
        raise fields.error(f"{scaling}.factor", "a number of at least 1")
    original = fields.integer(f"{scaling}.original_context_length", None, low=1, high=MAX_POSITIONS)
    if ROPE_FACTORS in file.tensors:
        if kind != "none":
            raise fields.error(f"{scaling}.type", f"none beside the tensor {ROPE_FACTORS}")
        return _divided(file, theta, head_dim, original or LLAMA3_ORIGINAL)
    if kind == "linear":
        return RotaryConfig(theta, "linear", factor)
    if kind == "yarn":
        return _yarn(fields, arch, theta, factor)
    return RotaryConfig(theta)


def _yarn(fields: Fields, arch: str, theta: float, factor: float) -> RotaryConfig:
    """Yarn scaling. A stored attention factor multiplies the one derived from ``factor``."""
    scaling = f"{arch}.rope.scaling"
    context = fields.integer(f"{arch}.context_length", low=1, high=MAX_POSITIONS)
    stored = fields.number(f"{scaling}.attn_factor", None, above=0.0)
    if stored is None:
        stored = fields.number(f"{scaling}.yarn_attn_factor", 1.0, above=0.0)
    derived = 1.0 + 0.1 * math.log(factor)
    return RotaryConfig(
        theta,
        "yarn",
        factor,
        fields.integer(f"{scaling}.original_context_length", context, low=1, high=MAX_POSITIONS),
        beta_fast=fields.number(f"{scaling}.yarn_beta_fast", 32.0, above=0.0),
        beta_slow=fields.number(f"{scaling}.yarn_beta_slow", 1.0, above=0.0),
        attention_factor=None if stored == 1.0 else stored * derived,
    )


def llama3_factors(rotary: RotaryConfig, head_dim: int) -> torch.Tensor:
    """Return what llama3 scaling divides each frequency by: float64 [head_dim / 2], 1 to factor.

    The rule is that of Llama 3.1: with r the rotations of a dimension over the trained context,
    frequencies with r above ``high_freq_factor`` are kept, those with r below ``low_freq_factor``
    are divided by ``factor``, and the inverse of the divisor is linear in r between them.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu") / head_dim
    rotations = rotary.original_max_position / (2 * math.pi * rotary.theta**exponent)
    low, high = rotary.low_freq_factor, rotary.high_freq_factor
    kept = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return 1.0 / ((1.0 - kept) / rotary.factor + kept)


def _divided(file: GgufFile, theta: float, head_dim: int, original: int) -> RotaryConfig:
    """Rotary parameters from the frequency factors: llama3 scaling if they are its, else as is."""
    entry = file.tensors[ROPE_FACTORS]
    if entry.format != "F32" or entry.shape != (head_dim // 2,):
        raise ModelError(
            f"{file.source}: tensor {ROPE_FACTORS} must be F32 of shape [{head_dim // 2}], "
            f"not {list(entry.shape)}"
        )
    stored = file.data(ROPE_FACTORS).double()
    if not bool(torch.isfinite(stored).all()) or float(stored.min()) <= 0.0:
        raise ModelError(
            f"{file.source}: tensor {ROPE_FACTORS} must hold finite numbers above 0: they divide "
            "the rotary frequencies"
        )
    rotary = RotaryConfig(
        theta,
        "llama3",
        float(stored.max()),
        original,
        low_freq_factor=LLAMA3_LOW,
        high_freq_factor=LLAMA3_HIGH,
    )
    wanted = llama3_factors(rotary, head_dim)
    if torch.allclose(stored, wanted, rtol=FACTOR_TOLERANCE, atol=0.0):
        return rotary
    return RotaryConfig(theta, "divided", divisors=tuple(stored.tolist()))
