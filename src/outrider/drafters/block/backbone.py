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
from outrider.kernels.blockwise import ContextWeights
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.table import Kernels, LayerWeights, Linear, PageStore, Stack
from outrider.kernels.tensors import index_range
from outrider.models.dense import TensorSource
from outrider.models.rotary import rotary_table

#: Attention of a layer's block rows: (q [n, h, d], k [n, g, d], v [n, g, d]) to float32 [n, h d].
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class BlockBackbone:
    """Context features, context keys and values, and the block's decoder layers.

    Attributes:
        config: the shape.
        kernels: the operator table that runs it.
        stack: the decoder layers, for the composed operators.
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
        self.final_norm = self._vector("norm.weight", c.hidden_size)
        self.mask = self._vector("mask_embedding", c.hidden_size) if c.learned_mask else None
        self._context = self._context_weights()
        self.stack = Stack(
            tuple(self._layer_weights(index) for index in range(c.num_layers)),
            c.num_heads,
            c.num_kv_heads,
            c.head_dim,
            c.rms_eps,
            rotary_table(c.rotary, c.head_dim, c.max_position + c.block_size),
        )

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
        for index, layer in enumerate(self.stack.layers):
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
        self.kernels.ingest(self._context, self.stack, taps, rows, store)

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
        layer, kernels, eps = self.stack.layers[index], self.kernels, self.config.rms_eps
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
        q, k, v = self.kernels.split_heads(self.stack, self.kernels.linear(x, layer.qkv))
        return (
            self._rotated(q, layer.q_norm, positions),
            self._rotated(k, layer.k_norm, positions),
            v,
        )

    def _rotated(self, x: Tensor, norm: Tensor | None, positions: Tensor) -> Tensor:
        if norm is not None:
            x = self.kernels.rms_norm(x, norm, self.config.rms_eps)
        return self.kernels.rotate(x, positions, self.stack.rotary)

    def _finish(self, x: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, self.final_norm, self.config.rms_eps)

    # -- weights -------------------------------------------------------------------------------

    def _vector(self, name: str, size: int) -> Tensor:
        return self._tensors(name, (size,)).float().contiguous()

    def _projections(self, index: int, names: str) -> tuple[list[str], list[int]]:
        c = self.config
        q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        return [f"layers.{index}.self_attn.{name}_proj" for name in names], [
            q if name == "q" else kv for name in names
        ]

    def _biases(self, names: list[str], sizes: list[int]) -> Tensor | None:
        if not self.config.attention_bias:
            return None
        parts = zip(names, sizes, strict=True)
        return torch.cat([self._vector(f"{name}.bias", size) for name, size in parts])

    def _context_weights(self) -> ContextWeights:
        c = self.config
        fc = self._tensors("fc.weight", (c.hidden_size, len(c.taps) * c.hidden_size))
        norm = self._vector("hidden_norm.weight", c.hidden_size)
        return ContextWeights(self.kernels.prepare([fc]), norm, self._context_product())

    def _context_product(self) -> Linear:
        """Keys and values of layer 0, then of layer 1, and so on, as one matrix."""
        names, sizes = [], []
        for index in range(self.config.num_layers):
            more_names, more_sizes = self._projections(index, "kv")
            names += more_names
            sizes += more_sizes
        width = self.config.hidden_size
        parts = [
            self._tensors(f"{name}.weight", (size, width))
            for name, size in zip(names, sizes, strict=True)
        ]
        return self.kernels.prepare(parts, self._biases(names, sizes))

    def _layer_weights(self, index: int) -> LayerWeights:
        c, tensors, prefix = self.config, self._tensors, f"layers.{index}."
        names, sizes = self._projections(index, "qkv")
        qkv = [
            tensors(f"{name}.weight", (size, c.hidden_size))
            for name, size in zip(names, sizes, strict=True)
        ]
        out_name = prefix + "self_attn.o_proj"
        out = tensors(out_name + ".weight", (c.hidden_size, sizes[0]))
        ff = (c.intermediate_size, c.hidden_size)
        gate_up = [tensors(f"{prefix}mlp.{name}_proj.weight", ff) for name in ("gate", "up")]
        return LayerWeights(
            attn_norm=self._vector(prefix + "input_layernorm.weight", c.hidden_size),
            qkv=self.kernels.prepare(qkv, self._biases(names, sizes)),
            q_norm=self._vector(prefix + "self_attn.q_norm.weight", c.head_dim),
            k_norm=self._vector(prefix + "self_attn.k_norm.weight", c.head_dim),
            out=self.kernels.prepare([out], self._biases([out_name], [c.hidden_size])),
            mlp_norm=self._vector(prefix + "post_attention_layernorm.weight", c.hidden_size),
            gate_up=self.kernels.prepare(gate_up),
            down=self.kernels.prepare([tensors(prefix + "mlp.down_proj.weight", ff[::-1])]),
            window=c.windows[index],
            causal=c.causal[index],
        )


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
