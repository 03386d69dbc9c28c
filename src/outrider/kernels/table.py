"""The operator table: one signature per operator, several implementations.

Contract of every operator: a row's bits depend on that row's inputs alone, never on how many rows
share the call, which they are, or where the row stands among them. Reductions run in an order
fixed by the weight's shape and by absolute token position.

Weights come as values (``values``) and are prepared once, when they are checked; what an
implementation makes of them, its handles (``handles``), only it can read: another's is refused with
TypeError.

Shapes: n rows, H hidden, F intermediate, h query heads, g key/value heads, d head width, V
vocabulary. Activations are float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels.handles import (
    BlockDrafter,
    ContextProjection,
    Linear,
    MarkovBias,
    PageStore,
    Stack,
)
from outrider.kernels.rows import Rows
from outrider.kernels.values import (
    Block,
    BlockDraftWeights,
    ContextWeights,
    MarkovWeights,
    RotaryTable,
    StackWeights,
)
from outrider.kernels.weights import RawWeight


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
    def prepare_stack(self, weights: StackWeights) -> Stack:
        """Prepare decoder layers for ``run_layers``, ``run_block`` and ``write_context``.

        What a weight is checked for is checked here, once; a tensor must not change afterwards.

        Raises:
            TypeError: a weight was prepared by another implementation.
            ValueError: weights do not fit each other.
        """

    @abstractmethod
    def prepare_context(self, weights: ContextWeights) -> ContextProjection:
        """Prepare a drafter's weights for ``ingest``; raises as ``prepare_stack``."""

    @abstractmethod
    def prepare_markov_bias(self, weights: MarkovWeights) -> MarkovBias:
        """Prepare a bias for ``markov_decode``; raises as ``prepare_stack``.

        Raises:
            IndexError: a target id is outside the embedding.
        """

    @abstractmethod
    def prepare_block_drafter(self, weights: BlockDraftWeights) -> BlockDrafter:
        """Prepare a drafter's weights for ``draft_blocks``; raises as ``prepare_markov_bias``."""

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

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
    def run_block(self, stack: Stack, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        """Run block rows over cached context; nothing is written. float32 [n, H] to [n, H]."""

    @abstractmethod
    def write_context(self, stack: Stack, flat: Tensor, rows: Rows, store: PageStore) -> None:
        """Write every layer's keys, normed and rotated, and values, as they are.

        Args:
            stack: the layers.
            flat: keys and values of layer 0, then of layer 1, and so on, float32
                [n, layers 2 g d].
            rows: their staged cache rows.
            store: the pages.
        """

    @abstractmethod
    def ingest(
        self, context: ContextProjection, taps: Tensor, rows: Rows, store: PageStore
    ) -> None:
        """Write the context rows of tapped states, float32 [n, taps H], for all layers.

        ``write_context`` of ``linear(RMSNorm(linear(taps, fc)), keys_values)``.
        """

    @abstractmethod
    def markov_decode(self, markov: MarkovBias, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Choose a token in every row, block by block from left to right; target ids int64 [n].

        A row's scores are its own plus ``linear(embed(tokens, previous), out)``, where ``previous``
        is the token chosen in the row before. It takes the best, the lowest draft id on ties, or
        draws as ``draw`` does, with noise keyed by target ids.

        Args:
            markov: the bias.
            scores: scores of all blocks' rows over draft ids, float32 [n, V'].
            blocks: the blocks, whose lengths add up to n.
        """

    @abstractmethod
    def draft_blocks(
        self, drafter: BlockDrafter, rows: Rows, store: PageStore, blocks: Sequence[Block]
    ) -> tuple[Tensor, Tensor]:
        """Draft every block: ``run_block``, final norm, head, ``markov_decode``, confidences.

        Args:
            drafter: the drafter.
            rows: one group of block rows per block, over cached context.
            store: the context pages.
            blocks: as in ``markov_decode``; block row ``first`` of the weights predicts the
                first token.

        Returns:
            Target ids, int64 [n], and confidences, float32 [n]: NaN where a state is not finite, 1
            without a confidence head.
        """
