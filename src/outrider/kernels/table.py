"""The operator table: one signature per operator, several implementations.

Contract of every operator: a row's bits depend on that row's inputs alone, never on how many rows
share the call, which they are, or where the row stands among them. Reductions run in an order
fixed by the weight's shape and by absolute token position.

Shapes: n rows, H hidden, F intermediate, h query heads, g key/value heads, d head width, V
vocabulary. Activations are float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels import blockwise
from outrider.kernels.blockwise import Block, Chain, ContextWeights, Sketch
from outrider.kernels.philox import STREAM_TOKEN
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import index_range, token_ids
from outrider.kernels.weights import RawWeight


class Linear(ABC):
    """A prepared weight matrix [N, K], with an optional bias; opaque above the kernels floor."""

    out_features: int
    in_features: int

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that one product reads."""


class PageStore(ABC):
    """Key and value rows of every layer of one model, in pages; opaque above the kernels floor.

    Attributes:
        layers, pages, kv_heads, head_dim: the shape it was allocated for.
        dtype: the precision of its rows.
    """

    layers: int
    pages: int
    kv_heads: int
    head_dim: int
    dtype: KvDtype

    @property
    @abstractmethod
    def page_nbytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""

    @abstractmethod
    def copy_page(self, source: int, target: int) -> None:
        """Copy one page of every layer onto another page."""

    @abstractmethod
    def read_page(self, page: int) -> tuple[Tensor, ...]:
        """Return a copy of one page's contents, for a cache entry that outlives the page."""

    @abstractmethod
    def write_page(self, page: int, contents: tuple[Tensor, ...]) -> None:
        """Overwrite one page with contents that ``read_page`` returned."""

    @abstractmethod
    def clear_page(self, page: int, upto: int) -> None:
        """Set the first ``upto`` rows of a page to zero in every layer."""


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


@dataclass(frozen=True)
class Stack:
    """Decoder layers that share a shape and a rotary table."""

    layers: tuple[LayerWeights, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    rotary: RotaryTable


class Kernels(ABC):
    """One implementation of the operator table. Stateless but for its buffers and threads."""

    #: Short name of the implementation and of the code path it chose, e.g. "cpu-avx512vnni".
    name: str
    device: torch.device
    #: How drafters keep their own keys and values, whose bits never reach an output.
    draft_kv_dtype: KvDtype

    # -- preparation ---------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear:
        """Prepare matrices [N_i, K], stacked along their outputs, for ``linear``.

        Args:
            parts: matrices that share K; formats may differ.
            bias: float32 [sum N_i], added after the product.
        """

    @abstractmethod
    def allocate(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: KvDtype
    ) -> PageStore:
        """Allocate ``pages`` pages of PAGE_TOKENS rows; memory is touched only when written.

        A row is rounded when it is written, and so are the block rows of ``attend_block``: float32
        is kept as it is, bfloat16 rounds to nearest, int8 keeps ``round(x / s)`` with one float32
        scale s = max |x| / 127 per token and head. NaN stays NaN: it reaches the results of those
        that see the row, and of nobody else.
        """

    # -- elementary operators ------------------------------------------------------------------

    @abstractmethod
    def embed(self, table: Linear, ids: Tensor) -> Tensor:
        """Rows ``ids`` (int64 [n]) of a prepared [V, H] matrix, float32 [n, H]."""

    @abstractmethod
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension (arXiv 1910.07467).

        A row whose mean is not finite, because its squares overflow for one, is NaN: divided by
        infinity it would be a row of zeros, and nobody could tell.
        """

    @abstractmethod
    def linear(self, x: Tensor, weight: Linear) -> Tensor:
        """``x @ W.T + bias``: float32 [n, K] to [n, N]."""

    @abstractmethod
    def swiglu(self, gate_up: Tensor) -> Tensor:
        """``silu(gate) * up`` of float32 [n, 2 F] to [n, F] (arXiv 2002.05202)."""

    @abstractmethod
    def rotate(self, x: Tensor, positions: Tensor, table: RotaryTable) -> Tensor:
        """Rotate float32 [n, heads, d] by position (arXiv 2104.09864).

        Dimension i pairs with i + d / 2, as in Hugging Face checkpoints.
        """

    @abstractmethod
    def write(self, store: PageStore, layer: int, k: Tensor, v: Tensor, rows: Rows) -> None:
        """Write k and v (float32 [n, g, d]) at the rows' cache slots of one layer."""

    @abstractmethod
    def attend(
        self, q: Tensor, store: PageStore, layer: int, rows: Rows, window: int | None
    ) -> Tensor:
        """Causal attention over cached rows, float32 [n, h, d] to [n, h d].

        The row at position p sees positions max(floor, p - window + 1) .. p, all of which must have
        been written. Scores are scaled by d^-0.5. Keys are cut into fixed spans from position 0; an
        online softmax (arXiv 1805.02867) runs over the spans in order.
        """

    @abstractmethod
    def attend_block(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        store: PageStore,
        layer: int,
        rows: Rows,
        window: int | None,
        causal: bool,
    ) -> Tensor:
        """Attention of block rows over cached context and over their own group's k and v.

        The row at position p of a group that starts at s sees cached positions
        max(floor, p - window + 1) .. s - 1, then as a second segment the group's own rows: those up
        to p if ``causal``, else all; within ``window`` of p on either side. k and v (float32
        [n, g, d]) are never written to the store.
        """

    @abstractmethod
    def argmax(self, x: Tensor, head: Linear) -> Tensor:
        """Most likely token of every row: argmax of ``linear``, lowest id on ties, int64 [n].

        -1 for a row of which some output is NaN or infinite: nothing may be chosen there.
        """

    @abstractmethod
    def gumbel(self, seed: int, stream: int, position: int, ids: Tensor) -> Tensor:
        """Standard Gumbel noise of tokens ``ids`` (int64 [m]), float32 [m].

        Keyed by (seed, stream, position, id) alone through Philox4x32-10 (Salmon et al., SC 2011):
        key = the two halves of ``seed``, counter = (id, position, stream, 0), first output word x,
        u = (x + 0.5) / 2^32 in float64, noise = -log(-log(u)) rounded to float32.
        """

    # -- composed operators --------------------------------------------------------------------

    def draw(
        self,
        x: Tensor,
        head: Linear,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> Tensor:
        """Gumbel-max draw at every row, int64 [n].

        The argmax over v of ``linear(x, head)[v] / temperature + gumbel(seed, STREAM_TOKEN,
        position, v)``, lowest id on ties: a draw from the softmax of the scaled logits (Maddison et
        al., NeurIPS 2014), keyed by (seed, position) alone; -1 as for ``argmax``.
        """
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

    def walk(self, chain: Chain, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Choose a token in every row, block by block from left to right; target ids int64 [n].

        A row's scores are its own plus ``linear(embed(tokens, previous), out)``, where ``previous``
        is the token chosen in the row before. It takes the best, the lowest draft id on ties, or
        draws as ``draw`` does, with noise keyed by target ids.

        Args:
            chain: the bias.
            scores: scores of all blocks' rows over draft ids, float32 [n, V'].
            blocks: the blocks, whose lengths add up to n.
        """
        return blockwise.walk(self, chain, scores, blocks)

    def draft_blocks(
        self, sketch: Sketch, rows: Rows, store: PageStore, blocks: Sequence[Block]
    ) -> tuple[Tensor, Tensor]:
        """Draft every block from its tip: ``run_block``, final norm, head, ``walk``, confidences.

        Args:
            sketch: the drafter's weights.
            rows: one group of block rows per block, over cached context.
            store: the context pages.
            blocks: as in ``walk``; block row ``sketch.first`` predicts the first token.

        Returns:
            Target ids, int64 [n], and confidences, float32 [n]: NaN where a state is not finite, 1
            without a confidence head.
        """
        return blockwise.draft_blocks(self, sketch, rows, store, blocks)

    def ingest(
        self, weights: ContextWeights, stack: Stack, taps: Tensor, rows: Rows, store: PageStore
    ) -> None:
        """Write the context rows of tapped states, float32 [n, taps H], for all layers.

        ``write_context`` of ``linear(RMSNorm(linear(taps, fc)), keys_values)``.
        """
        normed = self.rms_norm(self.linear(taps, weights.fc), weights.norm, stack.eps)
        self.write_context(stack, self.linear(normed, weights.keys_values), rows, store)

    def run_layers(
        self, stack: Stack, x: Tensor, rows: Rows, store: PageStore, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run embedded rows through a causal decoder, writing their keys and values.

        Args:
            stack: the layers.
            x: float32 [n, H].
            rows: sessions, positions and pages of the rows.
            store: the pages.
            taps: layers whose residual output to return, -1 for ``x`` itself.

        Returns:
            The residual stream after the last layer, float32 [n, H], and the tapped states side by
            side in the order of ``taps``, float32 [n, len(taps) H], or None without taps.
        """
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
        """Run block rows over cached context; nothing is written. float32 [n, H] to [n, H]."""
        for index, layer in enumerate(stack.layers):
            q, k, v = self._project(stack, layer, x, rows)
            mixed = self.attend_block(q, k, v, store, index, rows, layer.window, layer.causal)
            x = self._finish_layer(stack, layer, x, mixed)
        return x

    def write_context(self, stack: Stack, flat: Tensor, rows: Rows, store: PageStore) -> None:
        """Write every layer's keys, normed and rotated, and values, as they are.

        Args:
            stack: the layers.
            flat: keys and values of layer 0, then of layer 1, and so on, float32
                [n, layers 2 g d].
            rows: their staged cache rows.
            store: the pages.
        """
        blockwise.write_context(self, stack, flat, rows, store)

    def _project(
        self, stack: Stack, layer: LayerWeights, x: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [n, h, d], keys and values [n, g, d], normed and rotated."""
        flat = self.linear(self.rms_norm(x, layer.attn_norm, stack.eps), layer.qkv)
        q, k, v = self.split_heads(stack, flat)
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

    @staticmethod
    def split_heads(stack: Stack, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split fused projections [n, (h + 2 g) d] into contiguous [n, heads, d] parts."""
        h, g, d = stack.num_heads, stack.num_kv_heads, stack.head_dim
        q, k, v = torch.split(flat, [h * d, g * d, g * d], dim=-1)
        n = flat.shape[0]
        return (
            q.reshape(n, h, d).contiguous(),
            k.reshape(n, g, d).contiguous(),
            v.reshape(n, g, d).contiguous(),
        )
