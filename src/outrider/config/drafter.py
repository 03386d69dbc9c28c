"""Shape of a block drafter (DFlash, DSpark)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.config.rotary import RotaryConfig

MarkovKind = Literal["vanilla", "gated", "rnn"]


@dataclass(frozen=True)
class DrafterConfig:
    """A drafter that denoises a block of mask tokens over the target's tapped states.

    Attributes:
        kind: "dflash" or "dspark".
        hidden_size: width H, equal to the target's.
        intermediate_size: width of the feed-forward layer.
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of one head.
        rms_eps: added to the mean square in every norm.
        vocab_size: the target's vocabulary.
        draft_vocab_size: rows of the drafter's head; smaller than ``vocab_size`` if trimmed.
        rotary: rotary embedding parameters.
        max_position: positions beyond which it does not draft.
        block_size: rows of a block as trained.
        row_shift: 0 if block row j predicts the token at its own position (row 0 is the anchor and
            predicts nothing), 1 if row j predicts the token after it.
        taps: target layers whose residual outputs it reads, in order; -1 is the embedding.
        num_target_layers: layers of the target it was trained for, 0 if not recorded.
        mask_token_id: token whose embedding fills the block rows after the anchor.
        windows: per layer, the sliding window, None for full attention.
        causal: per layer, whether a block row sees only earlier block rows.
        markov_rank: width of the Markov head, 0 for none.
        markov_kind: form of the Markov head.
        confidence: whether it has a confidence head.
        confidence_with_markov: whether that head also reads the previous token's Markov embedding.
    """

    kind: Literal["dflash", "dspark"]
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_eps: float
    vocab_size: int
    draft_vocab_size: int
    rotary: RotaryConfig
    max_position: int
    block_size: int
    row_shift: Literal[0, 1]
    taps: tuple[int, ...]
    num_target_layers: int
    mask_token_id: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    markov_rank: int = 0
    markov_kind: MarkovKind = "vanilla"
    confidence: bool = False
    confidence_with_markov: bool = False

    @property
    def max_draft(self) -> int:
        """Most tokens one block can draft."""
        return self.block_size if self.row_shift else self.block_size - 1
