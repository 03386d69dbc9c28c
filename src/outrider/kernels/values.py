"""What the operators are given: weights by their place in a network, and blocks to decode."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.kernels.handles import Linear, Stack


@dataclass(frozen=True)
class RotaryTable:
    """Cosine and sine of every position, float32 [positions, d / 2], attention factor included."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class LayerWeights:
    """One pre-norm decoder layer.

    Attributes:
        attn_norm: RMS norm weight [H] before attention.
        qkv: fused projection [(h + 2 g) d, H]: queries, keys, values.
        q_norm, k_norm: per-head RMS norm weights [d], or None.
        out: output projection [H, h d].
        mlp_norm: RMS norm weight [H] before the feed-forward layer.
        gate_up: fused projection [2 F, H]: gate, then up.
        down: projection [H, F].
        window: a row sees keys of the last ``window`` positions, its own included; None sees all.
        causal: for block rows: whether a row sees only the block rows up to itself.
    """

    attn_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    window: int | None = None
    causal: bool = True

    @property
    def matrices(self) -> tuple[Linear, ...]:
        """What a pass multiplies by."""
        return self.qkv, self.out, self.gate_up, self.down


@dataclass(frozen=True)
class StackWeights:
    """Decoder layers that share a shape and a rotary table.

    Attributes:
        layers: at least one.
        num_heads, num_kv_heads, head_dim: query heads, key and value heads, and their width.
        eps: added to the mean square in every norm.
        rotary: angles of every position that a row may have.
    """

    layers: tuple[LayerWeights, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    rotary: RotaryTable

    def split_heads(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split fused projections [n, (h + 2 g) d] into contiguous [n, heads, d] parts."""
        counts = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        heads = flat.reshape(flat.shape[0], sum(counts), self.head_dim)
        q, k, v = torch.split(heads, counts, dim=1)
        return q.contiguous(), k.contiguous(), v.contiguous()


@dataclass(frozen=True)
class MarkovWeights:
    """A low-rank bias by the token before, for decoding a block from left to right.

    Attributes:
        tokens: embedding [V, r] of the token before, by target id.
        out: projection [V', r] to the bias of every draft id.
        ids: target id of every draft id, int64 [V'], or None if they are the same.
    """

    tokens: Linear
    out: Linear
    ids: Tensor | None


@dataclass(frozen=True)
class Block:
    """Consecutive rows of scores that are decoded one after the other.

    Attributes:
        length: how many rows.
        tip: target id before the first row.
        temperature: 0 takes the best score, else scores are drawn from.
        seed: key of the noise.
        position: absolute position of the first row's token.
    """

    length: int
    tip: int
    temperature: float = 0.0
    seed: int = 0
    position: int = 0


@dataclass(frozen=True)
class BlockDraftWeights:
    """The weights that turn a tip into a drafted block.

    Attributes:
        stack: the block's decoder layers.
        embedding: token embeddings [V, H].
        scale: factor of a tip's embedding.
        masks: a block's rows before its tip is set, float32 [b, H].
        first: block row that predicts the first token.
        norm: RMS norm weight [H] after the layers.
        head: projection [V', H] to scores over draft ids.
        markov: bias by the token before.
        confidence: weights of a row's state, of ``markov.tokens[previous]``, and a bias, float32
            [H + r + 1]: confidence is the sigmoid of their product. None without such a head.
    """

    stack: Stack
    embedding: Linear
    scale: float
    masks: Tensor
    first: int
    norm: Tensor
    head: Linear
    markov: MarkovWeights
    confidence: Tensor | None


@dataclass(frozen=True)
class ContextWeights:
    """The weights that turn a target's tapped states into context rows of all layers.

    Attributes:
        stack: the layers that read the rows.
        fc: projection [H, taps H].
        norm: RMS norm weight [H].
        keys_values: projection [layers 2 g d, H]: keys and values of layer 0, then of layer 1, ...
    """

    stack: Stack
    fc: Linear
    norm: Tensor
    keys_values: Linear
