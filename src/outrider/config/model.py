"""Shape of a dense decoder."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.config.rotary import RotaryConfig


@dataclass(frozen=True)
class ModelConfig:
    """Everything the dense decoder family (Llama, Mistral, Qwen2, Qwen3) varies in.

    Attributes:
        architecture: "llama", "mistral", "qwen2" or "qwen3".
        hidden_size: width H of the residual stream.
        intermediate_size: width F of the gated feed-forward layer.
        num_layers: decoder layers.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides ``num_heads``.
        head_dim: width of one head.
        vocab_size: rows of the embedding and of the head.
        rms_eps: added to the mean square in every norm.
        max_position: longest context, rotary scaling included.
        rotary: rotary embedding parameters.
        tied: the head shares the embedding's weight.
        qkv_bias: q, k and v projections have a bias.
        o_bias: the output projection has a bias.
        qk_norm: per-head RMS norm of q and k before the rotary embedding.
        windows: per layer, how many keys a row sees, itself included; None sees all.
        eos_ids: tokens that end an answer.
        bos_id: token that begins a text, if the tokenizer adds one.
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_eps: float
    max_position: int
    rotary: RotaryConfig
    tied: bool
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    eos_ids: tuple[int, ...]
    bos_id: int | None = None

    @property
    def num_parameters(self) -> int:
        """Weights of the whole model, a tied head counted once."""
        attention = self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        layer = self.hidden_size * (attention + 3 * self.intermediate_size + 2)
        ends = self.vocab_size * self.hidden_size * (1 if self.tied else 2)
        return self.num_layers * layer + ends + self.hidden_size
