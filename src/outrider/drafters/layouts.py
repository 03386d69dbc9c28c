"""Configurations of published drafters, in the spellings of their makers, as one shape.

z-lab         architectures DFlashDraftModel or DFlash2DraftModel; options under dflash_config,
              or at the top of the file in older ones
DeepSpec      Qwen3DSparkModel; options at the top; rows are shifted even without a Markov head
SpecForge,    DSparkDraftModel, or DFlashDraftModel with projector_type "dspark"; DeepSpec's
vLLM          options under dflash_config
speculators   speculators_model_type; the layers under transformer_layer_config; taps counted
              with the embedding as 0
outrider      MTPDraftModel for multi-token-prediction heads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from outrider.config.decoder import DecoderShape
from outrider.config.drafter import (
    DrafterConfig,
    DrafterKind,
    MarkovKind,
    MtpConfig,
    TargetState,
)
from outrider.config.sizes import MAX_LAYERS, MAX_POSITIONS, MAX_ROWS, MAX_WIDTH
from outrider.loaders.fields import Fields
from outrider.loaders.hf_config import check_keys, read_eps
from outrider.loaders.rotary import read_rotary
from outrider.types.errors import DrafterError

CLASSES: Final[dict[str, DrafterKind | Literal["mtp"]]] = {
    "DFlashDraftModel": "dflash",
    "DFlash2DraftModel": "dflash2",
    "DSparkDraftModel": "dspark",
    "Qwen3DSparkModel": "dspark",
    "MTPDraftModel": "mtp",
}
SPECULATORS: Final[tuple[DrafterKind, ...]] = ("dflash", "dflash2", "dspark")
MARKOV_KINDS: Final[tuple[MarkovKind, ...]] = ("vanilla", "gated", "rnn")
TARGET_STATES: Final[tuple[TargetState, ...]] = ("residual", "normed")
#: Rows of a DFlash block where the configuration does not say.
DFLASH_BLOCK: Final = 16


def read_kind(fields: Fields) -> DrafterKind | Literal["mtp"]:
    """Which drafter a configuration describes.

    Raises:
        DrafterError: it is a target's, or of an unknown class.
    """
    if fields.has("speculators_model_type"):
        name = fields.string("speculators_model_type")
        for known in SPECULATORS:
            if name == known:
                return known
        raise _unknown(fields, "speculators_model_type", name, SPECULATORS)
    names = fields.strings("architectures", ())
    for name in names:
        if name in CLASSES:
            kind = CLASSES[name]
            projector = fields.sub("dflash_config").string("projector_type", "dflash")
            return "dspark" if kind == "dflash" and projector == "dspark" else kind
    if any(name.endswith(("ForCausalLM", "ForConditionalGeneration")) for name in names):
        raise DrafterError(
            f"{fields.source}: architectures is {names[0]}, a target model, not a drafter"
        )
    raise _unknown(fields, "architectures", ", ".join(names) or "missing", tuple(CLASSES))


def _unknown(fields: Fields, field: str, found: str, known: Sequence[str]) -> DrafterError:
    return DrafterError(f"{fields.source}: {field} is {found}; supported are {', '.join(known)}")


@dataclass(frozen=True)
class _Options:
    """Options that may stand under ``dflash_config`` or at the top; the former wins."""

    inner: Fields
    outer: Fields

    def holder(self, name: str) -> Fields:
        """The object that holds ``name``."""
        return self.inner if self.inner.has(name) else self.outer

    def integer(self, name: str, default: int | None = None, *, low: int | None = None) -> int:
        """Read an integer of at least ``low``, required without a default."""
        holder = self.holder(name)
        if default is None:
            return holder.integer(name, low=low)
        return holder.integer(name, default, low=low)

    def number(self, name: str, default: float) -> float:
        """Read a number."""
        return self.holder(name).number(name, default)

    def boolean(self, name: str, default: bool) -> bool:
        """Read true or false."""
        return self.holder(name).boolean(name, default)


def _read_shape(fields: Fields) -> DecoderShape:
    """Read and check the decoder's sizes, which every layout spells alike."""
    heads = fields.integer("num_attention_heads", low=1, high=MAX_WIDTH)
    hidden_size = fields.integer("hidden_size", low=1, high=MAX_WIDTH)
    max_position = fields.integer("max_position_embeddings", low=1)
    shape = DecoderShape(
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", low=1, high=MAX_ROWS),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads, low=1),
        head_dim=fields.integer("head_dim", hidden_size // heads, low=1, high=MAX_WIDTH),
        rms_eps=read_eps(fields, "rms_norm_eps", 1e-6),
        vocab_size=fields.integer("vocab_size", low=1, high=MAX_ROWS),
        rotary=read_rotary(fields, max_position),
        max_position=max_position,
    )
    if heads % shape.num_kv_heads:
        raise DrafterError(
            f"{fields.source}: num_attention_heads is {heads}, not a multiple of "
            f"num_key_value_heads {shape.num_kv_heads}"
        )
    if shape.head_dim % 2 or not shape.head_dim:
        raise DrafterError(
            f"{fields.source}: head_dim is {shape.head_dim}; it must be even, and at least 2"
        )
    if fields.string("hidden_act", "silu") != "silu":
        raise fields.error("hidden_act", "silu")
    return shape


def read_block_config(fields: Fields, kind: DrafterKind, learned_mask: bool) -> DrafterConfig:
    """Read a block drafter's configuration.

    Args:
        fields: config.json.
        kind: which drafter it describes.
        learned_mask: the checkpoint has a mask embedding, so a mask token is not needed.

    Raises:
        ModelError: a field is missing or of the wrong type.
        DrafterError: a field asks for something impossible or unsupported.
    """
    inner = fields.sub("transformer_layer_config") if _is_speculators(fields) else fields
    options = _Options(fields.sub("dflash_config"), fields)
    shape = _read_shape(inner)
    _refuse_unsupported(options, shape.hidden_size)
    layers = inner.integer("num_hidden_layers", low=1, high=MAX_LAYERS)
    check_keys(inner, layers * shape.num_kv_heads * shape.head_dim)
    sliding = _read_sliding(inner, options, layers)
    config = DrafterConfig(
        **vars(shape),
        kind=kind,
        draft_vocab_size=options.integer("draft_vocab_size", shape.vocab_size),
        block_size=_read_block_size(fields, options, kind),
        row_shift=_read_row_shift(options, kind),
        taps=_read_taps(fields, options, layers),
        num_target_layers=fields.integer("num_target_layers", 0),
        mask_token_id=_read_mask(options, learned_mask),
        windows=_read_windows(inner, options, sliding),
        causal=_read_causal(fields, options, kind, sliding),
        attention_bias=inner.boolean("attention_bias", False),
        learned_mask=learned_mask,
        embedding_scale=options.number("input_embedding_scale", 1.0),
        output_multiplier=options.number("output_multiplier", 1.0),
        logit_softcap=options.number("final_logit_softcapping", 0.0),
    )
    if config.max_draft < 1:
        raise DrafterError(f"{fields.source}: block_size is {config.block_size}: nothing to draft")
    if kind == "dspark":
        return _with_markov(config, options)
    return _with_selector(config, options) if kind == "dflash2" else config


def _with_markov(config: DrafterConfig, options: _Options) -> DrafterConfig:
    """Add the Markov and confidence heads."""
    holder = options.holder("markov_head_type")
    name = holder.choice("markov_head_type", MARKOV_KINDS, "vanilla")
    rank = options.integer("markov_rank", 0, low=0)
    confidence = options.boolean("enable_confidence_head", False)
    with_markov = confidence and options.boolean("confidence_head_with_markov", False)
    if with_markov and not rank:
        raise DrafterError(
            f"{holder.source}: confidence_head_with_markov is true but markov_rank is 0"
        )
    return replace(
        config,
        markov_rank=rank,
        markov_kind=next(kind for kind in MARKOV_KINDS if kind == name),
        confidence=confidence,
        confidence_with_markov=with_markov,
        confidence_threshold=options.number("confidence_threshold", 0.0),
    )


def _with_selector(config: DrafterConfig, options: _Options) -> DrafterConfig:
    """Add DFlash2's convolutions and candidate selector."""
    group = options.integer("conv_group_size")
    if group < 1 or config.hidden_size % group:
        raise DrafterError(
            f"{options.outer.source}: conv_group_size is {group}; it must divide hidden_size "
            f"{config.hidden_size}"
        )
    return replace(
        config,
        conv_kernel_size=options.integer("conv_kernel_size", low=1),
        conv_group_size=group,
        selector_rank=options.integer("selector_rank", low=1),
        selector_top_k=min(options.integer("selector_top_k", low=1), config.vocab_size),
    )


def _is_speculators(fields: Fields) -> bool:
    return fields.has("speculators_model_type")


def _refuse_unsupported(options: _Options, hidden_size: int) -> None:
    """Refuse options that would change the computation in ways that are not implemented."""
    source = options.outer.source
    if options.boolean("attention_sink_bias", False):
        raise DrafterError(f"{source}: attention_sink_bias is true; supported is false")
    if not options.boolean("is_neox_style", True):
        raise DrafterError(f"{source}: is_neox_style is false; supported is true")
    projector = options.holder("projector_type").string("projector_type", "dflash")
    if projector not in ("dflash", "dspark"):
        raise DrafterError(f"{source}: projector_type is {projector}; supported: dflash, dspark")
    tapped = options.integer("target_hidden_size", hidden_size)
    if tapped != hidden_size:
        raise DrafterError(
            f"{source}: target_hidden_size is {tapped}, but the drafter's hidden_size is "
            f"{hidden_size}"
        )


def _read_block_size(fields: Fields, options: _Options, kind: DrafterKind) -> int:
    if _is_speculators(fields) or kind != "dflash":
        return options.integer("block_size")
    return options.integer("block_size", DFLASH_BLOCK)


def _read_row_shift(options: _Options, kind: DrafterKind) -> Literal[0, 1]:
    """Whether row j predicts the token after its own position.

    DSpark's class is trained shifted, with or without a Markov head; DFlash's is not. A file may
    say so itself.
    """
    if kind == "dflash2":
        return 0
    name = (
        "shift_label" if options.holder("shift_label").has("shift_label") else "sample_from_anchor"
    )
    return 1 if options.boolean(name, kind == "dspark") else 0


def _read_mask(options: _Options, learned_mask: bool) -> int:
    holder = options.holder("mask_token_id")
    return holder.integer("mask_token_id", 0) if learned_mask else holder.integer("mask_token_id")


def _read_taps(fields: Fields, options: _Options, layers: int) -> tuple[int, ...]:
    """Target layers, counted from 0 with the embedding as -1.

    speculators lists indices of Hugging Face's hidden states, in which the embedding is 0.
    """
    if _is_speculators(fields):
        return tuple(index - 1 for index in fields.integers("aux_hidden_state_layer_ids"))
    taps = options.holder("target_layer_ids").integers("target_layer_ids", None)
    if taps is not None:
        return taps
    return default_taps(fields.integer("num_target_layers", low=4), layers)


def default_taps(num_target_layers: int, count: int) -> tuple[int, ...]:
    """Taps of a z-lab drafter that lists none: spread from layer 1 to the fourth from the end.

    Halves round to even, as they did where the drafters were trained.
    """
    if count == 1:
        return (num_target_layers // 2,)
    step = (num_target_layers - 4) / (count - 1)
    return tuple(round(1 + i * step) for i in range(count))


def _read_sliding(shape: Fields, options: _Options, layers: int) -> tuple[bool, ...]:
    """Which layers are sliding ones by their type."""
    types = shape.strings("layer_types", None)
    if types is not None:
        if len(types) != layers or not set(types) <= {"full_attention", "sliding_attention"}:
            raise shape.error("layer_types", f"{layers} times full_attention or sliding_attention")
        return tuple(kind == "sliding_attention" for kind in types)
    if options.boolean("use_swa", False):
        return (True,) * layers
    if shape.boolean("use_sliding_window", False):
        first = shape.integer("max_window_layers", layers)
        return tuple(index >= first for index in range(layers))
    return (False,) * layers


def _read_windows(
    shape: Fields, options: _Options, sliding: tuple[bool, ...]
) -> tuple[int | None, ...]:
    """Window of each layer; ``use_sliding_window: false`` switches all of them off."""
    if not any(sliding) or not shape.boolean("use_sliding_window", True):
        return (None,) * len(sliding)
    swa = options.holder("swa_window_size").integer(
        "swa_window_size", None, low=1, high=MAX_POSITIONS
    )
    window = shape.integer("sliding_window", low=1, high=MAX_POSITIONS) if swa is None else swa
    return tuple(window if is_sliding else None for is_sliding in sliding)


def _read_causal(
    fields: Fields, options: _Options, kind: DrafterKind, sliding: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Whether each layer is causal inside the block.

    ``is_causal`` decides; else ``dflash_config.causal``; else sliding layers are causal and full
    ones are not. speculators has a switch for its sliding layers instead.
    """
    if fields.has("is_causal"):
        return (fields.boolean("is_causal"),) * len(sliding)
    if options.inner.has("causal"):
        return (options.inner.boolean("causal"),) * len(sliding)
    if _is_speculators(fields) and fields.boolean("sliding_window_non_causal", kind == "dflash2"):
        return (False,) * len(sliding)
    return sliding


def read_mtp_config(fields: Fields) -> MtpConfig:
    """Read a multi-token-prediction head's configuration.

    Raises:
        ModelError: a field is missing or of the wrong type.
        DrafterError: a field asks for something impossible or unsupported.
    """
    shape = _read_shape(fields)
    check_keys(fields, shape.num_kv_heads * shape.head_dim)
    layers = fields.integer("mtp_num_hidden_layers", 1)
    if layers != 1:
        raise DrafterError(f"{fields.source}: mtp_num_hidden_layers is {layers}; supported is 1")
    state = fields.choice("target_state", TARGET_STATES, "normed")
    return MtpConfig(
        **vars(shape),
        draft_vocab_size=fields.integer("draft_vocab_size", shape.vocab_size),
        num_target_layers=fields.integer("num_target_layers", 0),
        depth=fields.integer("draft_depth", 3, low=1),
        target_state=next(kind for kind in TARGET_STATES if kind == state),
        window=fields.integer("sliding_window", None, low=1, high=MAX_POSITIONS)
        if fields.boolean("use_sliding_window", False)
        else None,
        qk_norm=fields.boolean("qk_norm", True),
        attention_bias=fields.boolean("attention_bias", False),
        zero_centered=fields.boolean("zero_centered_norms", False),
        confidence_threshold=fields.number("confidence_threshold", 0.0),
    )
