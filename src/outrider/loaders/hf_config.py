"""The model configuration in a Hugging Face folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from outrider.config.model import ModelConfig
from outrider.config.sizes import (
    MAX_EPS,
    MAX_KEYS,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_ROWS,
    MAX_WIDTH,
    MIN_EPS,
)
from outrider.loaders.context import read_context
from outrider.loaders.end_tokens import read_bos_id, read_eos_ids
from outrider.loaders.fields import Fields, read_json
from outrider.loaders.rotary import read_rotary
from outrider.types.errors import ModelError

CONFIG: Final = "config.json"


@dataclass(frozen=True)
class Architecture:
    """What a model type implies beyond its fields.

    Attributes:
        class_name: the only entry that ``architectures`` may have.
        biases: which attention projections have a bias; "field" reads ``attention_bias``, which
            covers q, k, v and o.
        qk_norm: q and k are normalised per head.
        windows: which layers have a sliding window: none, all if ``sliding_window`` is set, or the
            upper ones if ``use_sliding_window`` is set.
        head_dim: width of a head if the configuration has none; None divides the hidden size.
    """

    class_name: str
    biases: Literal["none", "qkv", "field"]
    qk_norm: bool
    windows: Literal["none", "all", "upper"]
    head_dim: int | None = None


ARCHITECTURES: Final = {
    "llama": Architecture("LlamaForCausalLM", "field", qk_norm=False, windows="none"),
    "mistral": Architecture("MistralForCausalLM", "none", qk_norm=False, windows="all"),
    "qwen2": Architecture("Qwen2ForCausalLM", "qkv", qk_norm=False, windows="upper"),
    "qwen3": Architecture("Qwen3ForCausalLM", "field", qk_norm=True, windows="upper", head_dim=128),
}

#: Values that a missing field stands for, as in the published configuration classes.
DEFAULT_WINDOW: Final = 4096
DEFAULT_WINDOW_LAYERS: Final = 28


def read_config(folder: Path) -> ModelConfig:
    """Return the configuration in a folder.

    Raises:
        ModelError: an unknown architecture, a missing field or an impossible value; the message
            names the file, the field, its value and what would be right.
    """
    fields = _text_fields(read_json(folder / CONFIG))
    architecture = fields.choice("model_type", ARCHITECTURES)
    traits = ARCHITECTURES[architecture]
    _refuse_foreign(fields, traits)
    hidden = fields.integer("hidden_size", low=1, high=MAX_WIDTH)
    heads = fields.integer("num_attention_heads", low=1, high=MAX_WIDTH)
    kv_heads = fields.integer("num_key_value_heads", heads, low=1)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"a divisor of {heads} attention heads")
    layers = fields.integer("num_hidden_layers", low=1, high=MAX_LAYERS)
    trained = fields.integer("max_position_embeddings", low=1, high=MAX_POSITIONS)
    head_dim = _head_dim(fields, traits, hidden, heads)
    check_keys(fields, layers * kv_heads * head_dim)
    rotary = read_rotary(fields, trained)
    vocab_size = fields.integer("vocab_size", low=1, high=MAX_ROWS)
    with_field = traits.biases == "field" and fields.boolean("attention_bias", False)
    return ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", low=1, high=MAX_ROWS),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        rms_eps=read_eps(fields, "rms_norm_eps"),
        max_position=read_context(folder, fields, trained, rotary),
        rotary=rotary,
        tied=fields.boolean("tie_word_embeddings", False),
        qkv_bias=with_field or traits.biases == "qkv",
        o_bias=with_field,
        qk_norm=traits.qk_norm,
        windows=_windows(fields, traits, layers),
        eos_ids=read_eos_ids(folder, fields, vocab_size),
        bos_id=read_bos_id(fields, vocab_size),
    )


def _text_fields(fields: Fields) -> Fields:
    """The part that describes the text model: the whole, or what is nested as ``text_config``."""
    nested = fields.sub("text_config")
    return nested if nested.has("num_attention_heads") else fields


def read_eps(fields: Fields, name: str, default: float | None = None) -> float:
    """Read what a norm adds to the mean square; required without a default.

    Raises:
        ModelError: it is zero, to float32 as well, or absurdly large.
    """
    if default is not None and not fields.has(name):
        return default
    eps = fields.number(name, above=0.0, high=MAX_EPS)
    if eps < MIN_EPS:
        raise fields.error(name, f"a finite number of at least {MIN_EPS:g}, which float32 can hold")
    return eps


def check_keys(fields: Fields, keys: int) -> None:
    """Refuse keys of one token, in all layers together, that no cache could hold.

    Raises:
        ModelError: there are too many.
    """
    if keys > MAX_KEYS:
        raise ModelError(
            f"{fields.source}: layers, key-value heads and the head width make {keys} key values "
            f"a token; at most {MAX_KEYS} are supported"
        )


def _refuse_foreign(fields: Fields, traits: Architecture) -> None:
    """Refuse what would otherwise be left out in silence."""
    names = fields.strings("architectures", (traits.class_name,))
    if names != (traits.class_name,):
        raise fields.error("architectures", f'["{traits.class_name}"]')
    if fields.string("hidden_act", "silu") != "silu":
        raise fields.error("hidden_act", "silu")
    if fields.boolean("mlp_bias", False):
        raise fields.error("mlp_bias", "false: feed-forward biases are not supported")
    if fields.has("quantization_config"):
        method = fields.sub("quantization_config").string("quant_method", "an unnamed method")
        raise ModelError(
            f"{fields.source}: field quantization_config: weights quantised by {method} are not "
            "supported; use a float checkpoint or a GGUF file"
        )


def _head_dim(fields: Fields, traits: Architecture, hidden: int, heads: int) -> int:
    """Width of one head; even, because rotary pairs are its halves."""
    head_dim = fields.integer("head_dim", traits.head_dim, low=2, high=MAX_WIDTH)
    if head_dim is None:
        if hidden % heads:
            raise fields.error("num_attention_heads", f"a divisor of hidden_size {hidden}")
        head_dim = hidden // heads
    if head_dim % 2:
        raise ModelError(f"{fields.source}: field head_dim must be even, not {head_dim}")
    return head_dim


def _windows(fields: Fields, traits: Architecture, layers: int) -> tuple[int | None, ...]:
    """Sliding window of each layer; a window of w lets a row see w keys, itself included."""
    if traits.windows == "none":
        return (None,) * layers
    # A missing window has the default; null means there is none.
    missing = "sliding_window" not in fields.names()
    default = DEFAULT_WINDOW if missing else None
    window = fields.integer("sliding_window", default, low=1, high=MAX_POSITIONS)
    if traits.windows == "all":
        return (window,) * layers
    if not fields.boolean("use_sliding_window", False):
        window = None
    if not fields.has("layer_types"):
        start = fields.integer("max_window_layers", DEFAULT_WINDOW_LAYERS, low=0)
        return tuple(window if layer >= start else None for layer in range(layers))
    kinds = fields.strings("layer_types")
    known = ("full_attention", "sliding_attention")
    if len(kinds) != layers or not set(kinds) <= set(known):
        raise fields.error("layer_types", f"a list of {layers} times {' or '.join(known)}")
    if window is None and "sliding_attention" in kinds:
        raise fields.error("layer_types", "full_attention throughout: no sliding window is in use")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
