"""The dense decoder family: Llama (SmolLM2), Mistral, Qwen2 and Qwen3.

All four are pre-norm decoders with grouped-query attention, rotary embeddings and a SwiGLU
feed-forward layer. They differ in biases (Qwen2), per-head norms of q and k (Qwen3), sliding
windows and tied embeddings, all of which are fields of ``ModelConfig``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from outrider.config.kv import KvCacheDtype, kv_dtype
from outrider.config.model import ModelConfig
from outrider.kernels.handles import Linear, PageStore
from outrider.kernels.rows import Rows
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range
from outrider.kernels.values import StackWeights
from outrider.models.layers import TensorSource, target_layers
from outrider.models.rotary import rotary_table
from outrider.types.errors import InvariantError
from outrider.types.progress import Progress, silent


@dataclass(frozen=True)
class TargetOutput:
    """What one target pass leaves behind.

    Attributes:
        hidden: final-norm states of the rows whose logits were asked for, float32 [m, H].
        taps: tapped states of all rows, float32 [n, taps H], or None.
        finite: whether each row's state after the last layer is finite, bool [n]; None if all are.
    """

    hidden: Tensor
    taps: Tensor | None
    finite: Tensor | None


class DenseModel:
    """A target: embedded tokens through the decoder to final-norm states."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: Kernels,
        tensors: TensorSource,
        max_positions: int,
        progress: Progress = silent,
    ) -> None:
        """Prepare every weight.

        Args:
            config: the shape.
            kernels: the operator table that will run it.
            tensors: the checkpoint.
            max_positions: rows of the rotary table.
            progress: told after each layer.
        """
        self.config = config
        self.kernels = kernels
        #: Whether any matrix is stored in blocks of integers.
        self.quantized = False
        reader = target_layers(config, tensors)
        layers = []
        for index in range(config.num_layers):
            raw = reader.read(f"model.layers.{index}.")
            self.quantized |= raw.quantized
            layers.append(raw.prepare(kernels, config.windows[index]))
            progress("Preparing weights", index + 1, config.num_layers + 1)
        self._weights = StackWeights(
            tuple(layers),
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.rms_eps,
            rotary_table(config.rotary, config.head_dim, max_positions),
        )
        self.stack = kernels.prepare_stack(self._weights)
        table_shape = (config.vocab_size, config.hidden_size)
        self.norm = reader.norm("model.norm.weight", config.hidden_size)
        embedding = tensors("model.embed_tokens.weight", table_shape)
        self._raw_head = embedding if config.tied else tensors("lm_head.weight", table_shape)
        self.quantized |= embedding.quantized or self._raw_head.quantized
        self.embedding = kernels.prepare([embedding])
        self.head = self.embedding if config.tied else kernels.prepare([self._raw_head])
        progress("Preparing weights", config.num_layers + 1, config.num_layers + 1)

    @property
    def positions(self) -> int:
        """Rows of the rotary table: a session can have no more tokens."""
        return self.stack.positions

    def reaching(self, positions: int) -> DenseModel:
        """Return a model over the same weights whose rotary table has ``positions`` rows."""
        if positions == self.positions:
            return self
        twin = copy.copy(self)
        rotary = rotary_table(self.config.rotary, self.config.head_dim, positions)
        twin._weights = replace(self._weights, rotary=rotary)
        twin.stack = self.kernels.prepare_stack(twin._weights)
        return twin

    def trimmed_head(self, ids: Tensor) -> Linear:
        """Prepare only the head rows ``ids`` (int64 [m]), for a drafter with a small vocabulary."""
        return self.kernels.prepare([self._raw_head.rows(ids)])

    def embed(self, ids: Tensor) -> Tensor:
        """Embed tokens, int64 [n] to float32 [n, H]."""
        return self.kernels.embed(self.embedding, ids)

    def forward(
        self,
        ids: Tensor,
        rows: Rows,
        store: PageStore,
        logit_rows: Tensor,
        taps: Sequence[int] = (),
    ) -> TargetOutput:
        """Run one ragged pass, writing the rows' keys and values.

        Args:
            ids: tokens, int64 [n].
            rows: their sessions, positions and pages.
            store: the pages.
            logit_rows: rows to carry through the final norm, ascending, int64 [m].
            taps: layers whose residual outputs the drafter reads.
        """
        x, tapped = self.kernels.run_layers(self.stack, self.embed(ids), rows, store, taps)
        kept = x if len(logit_rows) == len(x) else x[logit_rows]
        hidden = self.kernels.rms_norm(kept, self.norm, self.config.rms_eps)
        return TargetOutput(hidden, tapped, _finite_rows(x))

    def first_fault(self, ids: Tensor, rows: Rows, store: PageStore) -> str:
        """The first part of the model whose output is not finite somewhere in these rows.

        Runs the rows again and writes the same keys and values. What no layer shows is the fault of
        what follows them: the final norm, or the head.

        Args:
            ids: tokens, int64 [n].
            rows: their sessions, positions and pages.
            store: the pages.
        """
        taps = tuple(range(-1, self.config.num_layers))
        output = self.forward(ids, rows, store, index_range(0, len(ids)), taps)
        if output.taps is None:
            raise InvariantError("taps were asked for")
        states = output.taps.reshape(len(ids), len(taps), self.config.hidden_size)
        bad = (~states.isfinite()).any(-1).any(0).nonzero()
        if len(bad):
            layer = int(bad[0]) - 1
            return "the embedding" if layer < 0 else f"layer {layer} (model.layers.{layer})"
        return "the head" if bool(output.hidden.isfinite().all()) else "the final norm"

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final-norm states, float32 [m, H] to [m, V]."""
        return self.kernels.linear(hidden, self.head)

    def argmax(self, hidden: Tensor) -> Tensor:
        """Most likely tokens of final-norm states, int64 [m]; -1 if a logit is not finite."""
        return self.kernels.argmax(hidden, self.head)

    def draw(
        self,
        hidden: Tensor,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> Tensor:
        """Unfiltered Gumbel-max draws from final-norm states [m, H], int64 [m]."""
        return self.kernels.draw(hidden, self.head, temperatures, seeds, positions)

    def allocate(self, pages: int, dtype: KvCacheDtype = "auto") -> PageStore:
        """Allocate pages for this model's keys and values."""
        c, kept = self.config, kv_dtype(dtype, self.quantized)
        return self.kernels.allocate(c.num_layers, pages, c.num_kv_heads, c.head_dim, kept)

    @property
    def weight_nbytes(self) -> int:
        """Bytes that one pass reads at least."""
        return self.stack.nbytes + self.head.nbytes


def _finite_rows(x: Tensor) -> Tensor | None:
    """Whether each row of ``x`` [n, H] is finite, bool [n]; None if all are.

    NaN and infinities pass through a sum, so one reduction clears a pass in which all is well; a
    sum that merely overflows is looked into.
    """
    if math.isfinite(float(x.sum())):
        return None
    finite = x.isfinite().all(-1)
    return None if bool(finite.all()) else finite
