"""Operators composed of elementary ones: what an implementation has before it fuses anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outrider.kernels import drafting
from outrider.kernels.handles import Linear, PageStore
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range, token_ids
from outrider.kernels.values import (
    Block,
    BlockDraftWeights,
    ContextWeights,
    LayerWeights,
    MarkovBias,
    Stack,
)


class ComposedKernels(Kernels):
    """Every composed operator, from elementary ones that a subclass adds."""

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
        tapped = {-1: x} if -1 in taps else {}
        for index, layer in enumerate(stack.layers):
            q, k, v = self._project(stack, layer, x, rows)
            self.write(store, index, k, v, rows)
            mixed = self.attend(q, store, index, rows, layer.window)
            x = self._finish_layer(stack, layer, x, mixed)
            if index in taps:
                tapped[index] = x
        return x, torch.cat([tapped[tap] for tap in taps], dim=-1) if taps else None

    def run_block(self, stack: Stack, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        """Run layer by layer."""
        for index, layer in enumerate(stack.layers):
            q, k, v = self._project(stack, layer, x, rows)
            mixed = self.attend_block(q, k, v, store, index, rows, layer.window, layer.causal)
            x = self._finish_layer(stack, layer, x, mixed)
        return x

    def _project(
        self, stack: Stack, layer: LayerWeights, x: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, h, d], keys and values [n, g, d], normed and rotated."""
        flat = self.linear(self.rms_norm(x, layer.attn_norm, stack.eps), layer.qkv)
        q, k, v = stack.split_heads(flat)
        if layer.q_norm is not None:
            q = self.rms_norm(q, layer.q_norm, stack.eps)
        if layer.k_norm is not None:
            k = self.rms_norm(k, layer.k_norm, stack.eps)
        q = self.rotate(q, rows.positions, stack.rotary)
        return q, self.rotate(k, rows.positions, stack.rotary), v

    def _finish_layer(self, stack: Stack, layer: LayerWeights, x: Tensor, mixed: Tensor) -> Tensor:
        """Output projection, feed-forward layer and both residual additions."""
        x = x + self.linear(mixed, layer.out)
        normed = self.rms_norm(x, layer.mlp_norm, stack.eps)
        return x + self.linear(self.swiglu(self.linear(normed, layer.gate_up)), layer.down)

    # -- drafting ------------------------------------------------------------------------------

    def write_context(self, stack: Stack, flat: Tensor, rows: Rows, store: PageStore) -> None:
        """Write layer by layer."""
        drafting.write_context(self, stack, flat, rows, store)

    def ingest(
        self, weights: ContextWeights, stack: Stack, taps: Tensor, rows: Rows, store: PageStore
    ) -> None:
        """Project, norm, project, write."""
        normed = self.rms_norm(self.linear(taps, weights.fc), weights.norm, stack.eps)
        self.write_context(stack, self.linear(normed, weights.keys_values), rows, store)

    def markov_decode(self, markov: MarkovBias, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Choose row by row."""
        return drafting.markov_decode(self, markov, scores, blocks)

    def draft_blocks(
        self, weights: BlockDraftWeights, rows: Rows, store: PageStore, blocks: Sequence[Block]
    ) -> tuple[Tensor, Tensor]:
        """Draft with one operator after the other."""
        return drafting.draft_blocks(self, weights, rows, store, blocks)
