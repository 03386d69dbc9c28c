"""Shapes of new drafters for a target, and their draft vocabulary."""

from __future__ import annotations

from outrider.config.decoder import DecoderShape
from outrider.config.drafter import DrafterConfig, MtpConfig
from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.train.config import Kind, ShapeConfig
from outrider.types.errors import DrafterError


def spread_taps(num_layers: int, count: int) -> tuple[int, ...]:
    """The usual taps: from layer 1 to the fourth from the end, halves rounded to even."""
    if count == 1:
        return (num_layers // 2,)
    return tuple(round(1 + i * (num_layers - 4) / (count - 1)) for i in range(count))


def block_config(target: ModelConfig, shape: ShapeConfig, kind: Kind) -> DrafterConfig:
    """Shape of a DSpark or a DFlash drafter with heads of the target's shape.

    Raises:
        DrafterError: the target is too small for the taps.
    """
    taps = shape.taps or spread_taps(target.num_layers, shape.num_taps)
    if not all(-1 <= tap < target.num_layers for tap in taps):
        raise DrafterError(f"taps {taps} must be below the target's {target.num_layers} layers")
    shifted = kind == "dspark"
    rank = shape.markov_rank if shifted else 0
    return DrafterConfig(
        **vars(_decoder_shape(target, shape)),
        kind="dspark" if shifted else "dflash",
        draft_vocab_size=min(shape.draft_vocab, target.vocab_size),
        block_size=shape.block if shifted else shape.block + 1,
        row_shift=1 if shifted else 0,
        taps=taps,
        num_target_layers=target.num_layers,
        mask_token_id=0,
        windows=(None,) * shape.layers,
        causal=(False,) * shape.layers,
        markov_rank=rank,
        markov_kind=shape.markov_kind,
        confidence=shifted and shape.confidence,
        confidence_with_markov=shifted and shape.confidence and rank > 0,
        learned_mask=True,
    )


def _decoder_shape(target: ModelConfig, shape: ShapeConfig) -> DecoderShape:
    """The target's shape, for layers that may be narrower inside.

    Its rotary parameters too, unless a drafter's configuration has no words for them.
    """
    divided = target.rotary.kind == "divided"
    return DecoderShape(
        hidden_size=target.hidden_size,
        intermediate_size=shape.intermediate_size or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        rms_eps=target.rms_eps,
        vocab_size=target.vocab_size,
        rotary=RotaryConfig(target.rotary.theta) if divided else target.rotary,
        max_position=target.max_position,
    )


def mtp_config(target: ModelConfig, shape: ShapeConfig) -> MtpConfig:
    """Shape of a multi-token-prediction head with a layer of the target's shape."""
    return MtpConfig(
        **vars(_decoder_shape(target, shape)),
        draft_vocab_size=min(shape.draft_vocab, target.vocab_size),
        num_target_layers=target.num_layers,
        depth=shape.block,
        qk_norm=target.qk_norm or not shape.warm_layers,
    )
