"""Shapes of learned drafters: block drafters (DFlash, DSpark, DFlash2) and MTP heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.config.decoder import DecoderShape

DrafterKind = Literal["dflash", "dflash2", "dspark"]
MarkovKind = Literal["vanilla", "gated", "rnn"]
TargetState = Literal["residual", "normed"]


@dataclass(frozen=True)
class DrafterConfig(DecoderShape):
    """A drafter that denoises a block of mask tokens over the target's tapped states.

    Its width and its vocabulary are the target's.

    Attributes:
        kind: "dflash", "dflash2" or "dspark".
        draft_vocab_size: rows of the drafter's head; smaller than ``vocab_size`` if trimmed.
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
        attention_bias: the attention projections have biases.
        learned_mask: a vector of the checkpoint, not a token's embedding, fills the block rows.
        confidence_threshold: the draft ends before the first token whose estimated acceptance is
            below this; 0 never ends it.
        embedding_scale: multiplies the embeddings of the block rows.
        output_multiplier: multiplies the logits.
        logit_softcap: bounds the logits to (-c, c) as ``c tanh(x / c)``; 0 leaves them alone.
        conv_kernel_size: dflash2: taps of the dynamic convolutions.
        conv_group_size: dflash2: channels that share a dynamic kernel.
        selector_rank: dflash2: width of the candidate selector's codebooks.
        selector_top_k: dflash2: candidates of each block row.
    """

    kind: DrafterKind
    draft_vocab_size: int
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
    attention_bias: bool = False
    learned_mask: bool = False
    confidence_threshold: float = 0.0
    embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    logit_softcap: float = 0.0
    conv_kernel_size: int = 0
    conv_group_size: int = 0
    selector_rank: int = 0
    selector_top_k: int = 0

    @property
    def max_draft(self) -> int:
        """Most tokens one block can draft."""
        return self.block_size if self.row_shift else self.block_size - 1

    @property
    def num_layers(self) -> int:
        """Draft layers."""
        return len(self.windows)

    @property
    def reach(self) -> int | None:
        """How many positions up to a block row's own any layer can see; None sees all."""
        return max_window(self.windows)


@dataclass(frozen=True)
class MtpConfig(DecoderShape):
    """A multi-token-prediction head: one decoder layer, chained on its own hidden state.

    Its width and its vocabulary are the target's.

    Attributes:
        draft_vocab_size: rows of the drafter's head; smaller than ``vocab_size`` if trimmed.
        num_target_layers: layers of the target it was trained for, 0 if not recorded.
        depth: most tokens one chain drafts.
        target_state: what the head reads of the target: "residual" is the last layer's raw output,
            "normed" the same after the target's final norm. Qwen's and DeepSeek's heads read the
            latter.
        window: the layer's sliding window, None for full attention.
        qk_norm: per-head norms of queries and keys.
        attention_bias: the attention projections have biases.
        zero_centered: norm weights are stored as their difference from 1, as Qwen3-Next does.
        confidence_threshold: the chain ends before the first token whose probability is below
            this; 0 never ends it.
    """

    draft_vocab_size: int
    num_target_layers: int
    depth: int = 3
    target_state: TargetState = "normed"
    window: int | None = None
    qk_norm: bool = True
    attention_bias: bool = False
    zero_centered: bool = False
    confidence_threshold: float = 0.0


def max_window(windows: tuple[int | None, ...]) -> int | None:
    """Return the widest window, or None if any layer attends fully."""
    sliding = [window for window in windows if window is not None]
    return max(sliding) if sliding and len(sliding) == len(windows) else None
