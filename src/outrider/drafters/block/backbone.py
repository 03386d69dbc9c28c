"""The block backbone of DFlash, DFlash2 and DSpark, and its four forwards.

A block is [anchor, mask x (b - 1)] at positions s .. s + b - 1. Its rows run through a few pre-norm
decoder layers. In every layer they attend to the context, which is a function of the target's
tapped states alone, and to each other:

    c_t = RMSNorm(fc(taps_t))                    one vector per committed token, for all layers
    K_ctx = rope(k_norm(W_k c)), V_ctx = W_v c   per layer; c bypasses the layer's input norm
    Q, K, V of the block from the layer's normed input, as in any decoder

So context keys and values are computed once per committed token and appended to a cache
(arXiv 2602.06036, and the public package ``dflash``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from outrider.caches.paged import pages_for
from outrider.config.drafter import DrafterConfig
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range
from outrider.kernels.values import ContextWeights, LayerWeights, StackWeights
from outrider.kernels.weights import RawWeight
from outrider.models.layers import LayerFormat, LayerReader, TensorSource
from outrider.models.rotary import rotary_table

#: Attention of a layer's block rows: (q [n, h, d], k [n, g, d], v [n, g, d]) to float32 [n, h d].
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class BlockBackbone:
    """Context features, context keys and values, and the block's decoder layers.

    Attributes:
        config: the shape.
        kernels: the operator table that runs it.
        weights: the decoder layers.
        stack: the same, prepared for the operators that run all of them.
        final_norm: RMS norm weight [H] after the layers.
        mask: the learned mask embedding [H], or None if a token's embedding is used.
    """

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare every weight.

        Args:
            config: the shape.
            kernels: the operator table that will run it.
            tensors: the checkpoint.
        """
        self.config = config
        self.kernels = kernels
        self._tensors = tensors
        c = config
        form = LayerFormat(c.attention_bias, c.attention_bias, qk_norm=True)
        self._reader = reader = LayerReader(c, form, tensors)
        self.final_norm = reader.norm("norm.weight", c.hidden_size)
        self.mask = reader.vector("mask_embedding", c.hidden_size) if c.learned_mask else None
        layers: list[LayerWeights] = []
        keys_values: list[RawWeight] = []
        biases: list[Tensor] = []
        for index in range(c.num_layers):
            raw = reader.read(f"layers.{index}.")
            layers.append(raw.prepare(kernels, c.windows[index], c.causal[index]))
            keys_values += raw.qkv[1:]
            if raw.qkv_bias is not None:
                biases.append(raw.qkv_bias[c.num_heads * c.head_dim :])
        self.weights = StackWeights(
            tuple(layers),
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            c.rms_eps,
            rotary_table(c.rotary, c.head_dim, c.max_position + c.block_size),
        )
        self.stack = kernels.prepare_stack(self.weights)
        self._context = self._context_weights(keys_values, biases)
        self._projection = kernels.prepare_context(self._context)

    # -- the four forwards ---------------------------------------------------------------------

    def context_features(self, taps: Tensor) -> Tensor:
        """``RMSNorm(fc(taps))``: float32 [n, len(taps) H] to [n, H], row by row."""
        projected = self.kernels.linear(taps, self._context.fc)
        return self.kernels.rms_norm(projected, self._context.norm, self.config.rms_eps)

    def forward_oracle(self, taps: Tensor, block: Tensor, positions: Tensor) -> Tensor:
        """Run a block over its whole context, with dense attention and no cache.

        The meaning of the other forwards: keys and values of the context come from each layer's own
        projection, masks are written out over all keys.

        Args:
            taps: tapped states of the context, float32 [m, len(taps) H].
            block: embedded block rows, float32 [b, H].
            positions: absolute positions of the context rows, then of the block rows,
                int64 [m + b].

        Returns:
            Final-norm states of the block rows, float32 [b, H].
        """
        features = self.context_features(taps)
        count = features.shape[0]
        at, block_at = positions[:count], positions[count:]
        x = block
        for index, layer in enumerate(self.weights.layers):
            _, ctx_k, ctx_v = self._heads(layer, features, at)
            visible = _visible(at, block_at, layer.window, layer.causal)
            attend = partial(_attend_context, ctx_k, ctx_v, visible)
            x = self._layer(index, x, block_at, block.shape[0], attend)
        return self._finish(x)

    def forward_block(self, features: Tensor, block: Tensor, positions: Tensor) -> Tensor:
        """Run a block over given context features; nothing is kept.

        It is ``ingest`` followed by ``forward_round`` on scratch pages, so that the two agree to
        the last bit.

        Args:
            features: context features, float32 [m, H].
            block: embedded block rows, float32 [b, H].
            positions: consecutive absolute positions of the context rows, then of the block rows,
                int64 [m + b].

        Returns:
            Final-norm states of the block rows, float32 [b, H].
        """
        count, first = features.shape[0], int(positions[0])
        if not torch.equal(positions, index_range(first, first + len(positions))):
            raise ValueError("positions must be consecutive")
        skipped = first // PAGE_TOKENS
        fresh = max(pages_for(first + count) - skipped, 1)
        store = self.allocate(fresh)
        # Pages below the first row share a page: the floor keeps every reader above them.
        pages = [0] * skipped + list(range(fresh))
        if count:
            self.ingest(features, Rows((RowGroup(first, count, pages, first),)), store)
        group = RowGroup(first + count, block.shape[0], pages, first)
        return self.forward_round(block, Rows((group,)), store)

    def ingest(self, features: Tensor, rows: Rows, store: PageStore) -> None:
        """Append context rows: keys head-normed and roped at their positions, values raw.

        One product computes all layers' keys and values of all sessions' rows.

        Args:
            features: context features, float32 [n, H].
            rows: their staged cache rows.
            store: the draft pages.
        """
        flat = self.kernels.linear(features, self._context.keys_values)
        self.kernels.write_context(self.stack, flat, rows, store)

    def observe(self, taps: Tensor, rows: Rows, store: PageStore) -> None:
        """``ingest`` of ``context_features`` in one operator; taps float32 [n, len(taps) H]."""
        self.kernels.ingest(self._projection, taps, rows, store)

    def forward_round(self, block: Tensor, rows: Rows, store: PageStore) -> Tensor:
        """Run many sessions' blocks over their cached context; nothing is written.

        Args:
            block: embedded block rows of all sessions, float32 [n, H].
            rows: their positions; each group starts where its session's cached context ends.
            store: the draft pages.

        Returns:
            Final-norm states, float32 [n, H].
        """
        return self._finish(self._run(block, rows, store))

    # -- parts ---------------------------------------------------------------------------------

    def allocate(self, pages: int) -> PageStore:
        """Allocate pages for context keys and values."""
        c = self.config
        dtype = self.kernels.draft_kv_dtype
        return self.kernels.allocate(c.num_layers, pages, c.num_kv_heads, c.head_dim, dtype)

    def _run(self, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        return self.kernels.run_block(self.stack, x, rows, store)

    def _layer(
        self, index: int, x: Tensor, positions: Tensor, block_rows: int, attend: Attend
    ) -> Tensor:
        """One pre-norm layer over blocks of ``block_rows`` rows each, attention left open."""
        layer, kernels, eps = self.weights.layers[index], self.kernels, self.config.rms_eps
        normed = kernels.rms_norm(x, layer.attn_norm, eps)
        x = x + kernels.linear(attend(*self._heads(layer, normed, positions)), layer.out)
        return x + self._feed_forward(layer, kernels.rms_norm(x, layer.mlp_norm, eps))

    def _feed_forward(self, layer: LayerWeights, normed: Tensor) -> Tensor:
        gate_up = self.kernels.linear(normed, layer.gate_up)
        return self.kernels.linear(self.kernels.swiglu(gate_up), layer.down)

    def _heads(
        self, layer: LayerWeights, x: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, h, d], keys and values [n, g, d] of a layer, normed and rotated."""
        q, k, v = self.weights.split_heads(self.kernels.linear(x, layer.qkv))
        return (
            self._rotated(q, layer.q_norm, positions),
            self._rotated(k, layer.k_norm, positions),
            v,
        )

    def _rotated(self, x: Tensor, norm: Tensor | None, positions: Tensor) -> Tensor:
        if norm is not None:
            x = self.kernels.rms_norm(x, norm, self.config.rms_eps)
        return self.kernels.rotate(x, positions, self.weights.rotary)

    def _finish(self, x: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, self.final_norm, self.config.rms_eps)

    # -- weights -------------------------------------------------------------------------------

    def _context_weights(
        self, keys_values: list[RawWeight], biases: list[Tensor]
    ) -> ContextWeights:
        """Keys and values of layer 0, then of layer 1, and so on, are one product."""
        c = self.config
        fc = self._tensors("fc.weight", (c.hidden_size, len(c.taps) * c.hidden_size))
        norm = self._reader.norm("hidden_norm.weight", c.hidden_size)
        product = self.kernels.prepare(keys_values, torch.cat(biases) if biases else None)
        return ContextWeights(self.stack, self.kernels.prepare([fc]), norm, product)


def _visible(context: Tensor, block: Tensor, window: int | None, causal: bool) -> Tensor:
    """Mask [b, m + b] of the keys that each block row sees, context first."""
    distance = block[:, None] - torch.cat([context, block])[None]
    if window is None:
        seen = torch.ones_like(distance, dtype=torch.bool)
    else:
        seen = distance.abs() < window
    if causal:
        seen &= distance >= 0
    return seen


def _attend_context(
    ctx_k: Tensor, ctx_v: Tensor, visible: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """Softmax attention written out: q [b, h, d] over context and block keys to [b, h d]."""
    share = q.shape[1] // k.shape[1]
    keys = torch.cat([ctx_k, k]).repeat_interleave(share, dim=1)
    values = torch.cat([ctx_v, v]).repeat_interleave(share, dim=1)
    scores = torch.einsum("bhd,mhd->hbm", q, keys) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hbm,mhd->bhd", weights, values).flatten(1)
