"""Shape of a dense decoder."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.config.decoder import DecoderShape


@dataclass(frozen=True)
class ModelConfig(DecoderShape):
    """Everything the dense decoder family (Llama, Mistral, Qwen2, Qwen3) varies in.

    Attributes:
        architecture: "llama", "mistral", "qwen2" or "qwen3".
        num_layers: decoder layers.
        tied: the head shares the embedding's weight.
        qkv_bias: q, k and v projections have a bias.
        o_bias: the output projection has a bias.
        qk_norm: per-head RMS norm of q and k before the rotary embedding.
        windows: per layer, how many keys a row sees, itself included; None sees all.
        eos_ids: tokens that end an answer.
        bos_id: token that begins a text, if the tokenizer adds one.
    """

    architecture: str
    num_layers: int
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
