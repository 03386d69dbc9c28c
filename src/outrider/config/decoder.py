"""The shape that every decoder has, a target's or a drafter's."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.config.rotary import RotaryConfig


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder of pre-norm layers with grouped-query attention.

    Attributes:
        hidden_size: width H of the residual stream.
        intermediate_size: width F of the gated feed-forward layer.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides ``num_heads``.
        head_dim: width of one head.
        rms_eps: added to the mean square in every norm.
        vocab_size: rows of the target's embedding.
        rotary: rotary embedding parameters.
        max_position: longest context, rotary scaling included; a drafter does not draft beyond it.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float
    vocab_size: int
    rotary: RotaryConfig
    max_position: int
