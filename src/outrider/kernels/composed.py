"""Operators composed of elementary ones: what an implementation has before it fuses anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.kernels.drafting import ComposedDrafting
from outrider.kernels.handles import Linear, PageStore, Stack, own
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import index_range, token_ids
from outrider.kernels.values import LayerWeights, StackWeights


class ComposedStack(Stack):
    """A stack that keeps the values it was made of."""

    def __init__(self, weights: StackWeights) -> None:
        self.weights = weights
        self.layers, self.kv_heads = len(weights.layers), weights.num_kv_heads
        self.head_dim, self.eps = weights.head_dim, weights.eps
        self.hidden_size = weights.layers[0].qkv.in_features
        self.positions = weights.rotary.cos.shape[0]
        self.nbytes = sum(matrix.nbytes for layer in weights.layers for matrix in layer.matrices)


class ComposedKernels(ComposedDrafting):
    """Every composed operator, from elementary ones that a subclass adds."""

    def prepare_stack(self, weights: StackWeights) -> Stack:
        """Keep the weights."""
        return ComposedStack(weights)

    def draw(
        self,
        x: Tensor,
        head: Linear,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> Tensor:
        """Add noise to the scaled products row by row."""
        ids = index_range(0, head.out_features)
        drawn = []
        for logits, temperature, seed, position in zip(
            self.linear(x, head), temperatures, seeds, positions, strict=True
        ):
            scaled = logits.numpy() / np.float32(temperature)
            noise = self.gumbel(seed, STREAM_TOKEN, position, ids).numpy()
            finite = bool(logits.isfinite().all())
            drawn.append(int(np.argmax(scaled + noise)) if finite else -1)
        return token_ids(drawn)

    def run_layers(
        self, stack: Stack, x: Tensor, rows: Rows, store: PageStore, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run layer by layer."""
        weights = own(stack, ComposedStack).weights
        tapped = {-1: x} if -1 in taps else {}
        for index, layer in enumerate(weights.layers):
            q, k, v = self._project(weights, layer, x, rows)
            self.write(store, index, k, v, rows)
            mixed = self.attend(q, store, index, rows, layer.window)
            x = self._finish_layer(weights.eps, layer, x, mixed)
            if index in taps:
                tapped[index] = x
        return x, torch.cat([tapped[tap] for tap in taps], dim=-1) if taps else None

    def run_block(self, stack: Stack, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        """Run layer by layer."""
        weights = own(stack, ComposedStack).weights
        for index, layer in enumerate(weights.layers):
            q, k, v = self._project(weights, layer, x, rows)
            mixed = self.attend_block(q, k, v, store, index, rows, layer.window, layer.causal)
            x = self._finish_layer(weights.eps, layer, x, mixed)
        return x

    def write_context(self, stack: Stack, flat: Tensor, rows: Rows, store: PageStore) -> None:
        """Write layer by layer."""
        w = own(stack, ComposedStack).weights
        parts = flat.reshape(flat.shape[0], len(w.layers), 2, w.num_kv_heads, w.head_dim)
        for index, layer in enumerate(w.layers):
            k, v = parts[:, index, 0].contiguous(), parts[:, index, 1].contiguous()
            if layer.k_norm is not None:
                k = self.rms_norm(k, layer.k_norm, w.eps)
            self.write(store, index, self.rotate(k, rows.positions, w.rotary), v, rows)

    def _project(
        self, weights: StackWeights, layer: LayerWeights, x: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, h, d], keys and values [n, g, d], normed and rotated."""
        flat = self.linear(self.rms_norm(x, layer.attn_norm, weights.eps), layer.qkv)
        q, k, v = weights.split_heads(flat)
        if layer.q_norm is not None:
            q = self.rms_norm(q, layer.q_norm, weights.eps)
        if layer.k_norm is not None:
            k = self.rms_norm(k, layer.k_norm, weights.eps)
        q = self.rotate(q, rows.positions, weights.rotary)
        return q, self.rotate(k, rows.positions, weights.rotary), v

    def _finish_layer(self, eps: float, layer: LayerWeights, x: Tensor, mixed: Tensor) -> Tensor:
        """Output projection, feed-forward layer and both residual additions."""
        x = x + self.linear(mixed, layer.out)
        normed = self.rms_norm(x, layer.mlp_norm, eps)
        return x + self.linear(self.swiglu(self.linear(normed, layer.gate_up)), layer.down)
