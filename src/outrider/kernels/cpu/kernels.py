"""The native implementation: C++ for x86-64 with AVX-512 VNNI or AVX2, and for any machine.

Formats. Quantised weights keep their 4, 5 or 8 bits (five-bit integers take a byte); Q4_K and Q5_K
round their block scales to half precision, Q6_K is requantised to 8 bits per 32 weights. bfloat16
and float32 stay, float16 becomes float32. Under quantised weights activations are int8 per block of
32. Cached keys and values are int8 with a scale per token and head, bfloat16 or float32, as their
pages were allocated.

Why rows are invariant here. Integer block dots are exact, so instructions and tile sizes may differ
between row counts; every float accumulation runs block by block, span by span or lane by lane in an
order that shapes and absolute positions fix. Threads only choose who computes a piece.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels import _native
from outrider.kernels.composed import ComposedKernels
from outrider.kernels.cpu.arguments import (
    check,
    check_block,
    check_cache,
    check_layer,
    check_queries,
    check_tips,
    context_width,
    floats,
    indices,
    integers,
    need,
    stream_of,
)
from outrider.kernels.cpu.networks import CpuBlockDrafter, CpuContext, CpuMarkovBias, CpuStack
from outrider.kernels.cpu.packed import CpuLinear, CpuStore, block_args, packed, pages_of, stored
from outrider.kernels.handles import (
    BlockDrafter,
    ContextProjection,
    Linear,
    MarkovBias,
    PageStore,
    Stack,
    own,
)
from outrider.kernels.rows import Rows
from outrider.kernels.tensors import new_floats, new_ids
from outrider.kernels.values import (
    Block,
    BlockDraftWeights,
    ContextWeights,
    MarkovWeights,
    RotaryTable,
    StackWeights,
)
from outrider.kernels.weights import RawWeight


class CpuKernels(ComposedKernels):
    """Every operator in C++; one call for a whole stack of layers."""

    def __init__(self, threads: int | None = None, path: str | None = None) -> None:
        """Start the threads.

        Args:
            threads: by default one per core that this process may use.
            path: code path, by default the best of ``_native.paths()``.
        """
        path = path or _native.paths()[0]
        self.name = f"cpu-{path}"
        self.device = torch.device("cpu")
        self.draft_kv_dtype: KvDtype = "int8"  # the fastest to read
        self._engine = _native.Engine(path, threads or len(os.sched_getaffinity(0)))
        self.threads = self._engine.threads

    def prepare(self, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear:
        """Interleave the rows of every part by 16."""
        data = [stored(part) for part in parts]
        raw = [
            (tensor.data_ptr(), part.format, part.shape[0], part.shape[1])
            for tensor, part in zip(data, parts, strict=True)
        ]
        need(len({part.shape[1] for part in parts}) == 1, "stacked matrices share their inputs")
        outputs = sum(part.shape[0] for part in parts)
        offset = None if bias is None else floats(bias, outputs)
        return CpuLinear(self._engine.pack(raw, 0 if offset is None else offset.data_ptr()))

    def prepare_stack(self, weights: StackWeights) -> Stack:
        """Gather addresses."""
        return CpuStack(weights)

    def prepare_context(self, weights: ContextWeights) -> ContextProjection:
        """Check the shapes."""
        return CpuContext(weights)

    def prepare_markov_bias(self, weights: MarkovWeights) -> MarkovBias:
        """Pad the target ids to whole tiles."""
        return CpuMarkovBias(weights)

    def prepare_block_drafter(self, weights: BlockDraftWeights) -> BlockDrafter:
        """Gather addresses."""
        return CpuBlockDrafter(weights)

    def allocate(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: KvDtype
    ) -> PageStore:
        """Allocate pages."""
        return CpuStore(layers, pages, kv_heads, head_dim, dtype)

    def embed(self, table: Linear, ids: Tensor) -> Tensor:
        """Dequantise rows."""
        ids = indices(ids, table.out_features, "token ids")
        out = new_floats(ids.numel(), table.in_features)
        self._engine.embed(packed(table), ids.data_ptr(), ids.numel(), out.data_ptr())
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Normalise row by row."""
        cols = x.shape[-1]
        x, weight = floats(x), floats(weight, cols)
        out = new_floats(*x.shape)
        self._engine.norm(
            x.data_ptr(), weight.data_ptr(), eps, x.numel() // cols, cols, out.data_ptr()
        )
        return out

    def linear(self, x: Tensor, weight: Linear) -> Tensor:
        """Multiply; activations are quantised for quantised weights."""
        x = floats(x, x.shape[0], weight.in_features)
        out = new_floats(x.shape[0], weight.out_features)
        self._engine.linear(packed(weight), x.data_ptr(), x.shape[0], out.data_ptr())
        return out

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Gate row by row."""
        need(gate_up.ndim == 2 and gate_up.shape[1] % 2 == 0, "gates and values go in pairs")
        x = floats(gate_up)
        out = new_floats(x.shape[0], x.shape[1] // 2)
        self._engine.swiglu(x.data_ptr(), x.shape[0], out.shape[1], out.data_ptr())
        return out

    def rotate(self, x: Tensor, positions: Tensor, table: RotaryTable) -> Tensor:
        """Rotate head by head."""
        n, heads, head_dim = x.shape
        x, positions = floats(x), indices(positions, len(table.cos), "positions")
        need(head_dim % 2 == 0 and positions.shape == (n,), "rows need a position each")
        cos, sin = (floats(t, len(table.cos), head_dim // 2) for t in (table.cos, table.sin))
        out = new_floats(n, heads, head_dim)
        self._engine.rotate(
            x.data_ptr(),
            positions.data_ptr(),
            n,
            heads,
            head_dim,
            cos.data_ptr(),
            sin.data_ptr(),
            out.data_ptr(),
        )
        return out

    def write(self, store: PageStore, layer: int, k: Tensor, v: Tensor, rows: Rows) -> None:
        """Round rows into their slots."""
        check(rows, store)
        check_layer(layer, store)
        k, v = (floats(x, rows.count, store.kv_heads, store.head_dim) for x in (k, v))
        self._engine.write(pages_of(store), layer, k.data_ptr(), v.data_ptr(), rows)

    def attend(
        self, q: Tensor, store: PageStore, layer: int, rows: Rows, window: int | None
    ) -> Tensor:
        """Attend span by span; over int8 keys, queries and weights are 16-bit integers."""
        check(rows, store)
        check_layer(layer, store)
        q = check_queries(q, rows, store)
        out = new_floats(q.shape[0], q.shape[1] * q.shape[2])
        self._engine.attend(
            pages_of(store), layer, q.data_ptr(), rows, q.shape[1], window or 0, out.data_ptr()
        )
        return out

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
        """Attend to cached spans, then to spans of the block, rounded alike."""
        check_block(rows, store)
        check_layer(layer, store)
        q = check_queries(q, rows, store)
        k, v = (floats(x, rows.count, store.kv_heads, store.head_dim) for x in (k, v))
        out = new_floats(q.shape[0], q.shape[1] * q.shape[2])
        self._engine.attend_block(
            pages_of(store),
            layer,
            q.data_ptr(),
            k.data_ptr(),
            v.data_ptr(),
            rows,
            q.shape[1],
            window or 0,
            causal,
            out.data_ptr(),
        )
        return out

    def argmax(self, x: Tensor, head: Linear) -> Tensor:
        """Take the best output while multiplying."""
        return self._best(x, head, [], [], [])

    def draw(
        self,
        x: Tensor,
        head: Linear,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> Tensor:
        """Add temperature and noise while multiplying."""
        counts = {len(temperatures), len(seeds), len(positions)}
        need(counts == {x.shape[0]}, f"{x.shape[0]} rows with {counts} temperatures or keys")
        return self._best(x, head, temperatures, seeds, positions)

    def _best(
        self,
        x: Tensor,
        head: Linear,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> Tensor:
        x = floats(x, x.shape[0], head.in_features)
        out = new_ids(x.shape[0])
        self._engine.best(
            packed(head),
            x.data_ptr(),
            x.shape[0],
            list(temperatures),
            list(seeds),
            list(positions),
            out.data_ptr(),
        )
        return out

    def gumbel(self, seed: int, stream: int, position: int, ids: Tensor) -> Tensor:
        """Philox noise; the logarithms are within 2 ulp in float64 before rounding."""
        ids = integers(ids)
        out = new_floats(ids.numel())
        self._engine.gumbel(seed, stream, position, ids.data_ptr(), ids.numel(), out.data_ptr())
        return out

    def run_layers(
        self, stack: Stack, x: Tensor, rows: Rows, store: PageStore, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run the whole stack in one native call."""
        native = own(stack, CpuStack).native
        check(rows, store, stack.positions)
        check_cache(stack, store)
        need(all(-1 <= tap < stack.layers for tap in taps), f"no such layers: {list(taps)}")
        x = stream_of(x, stack, rows)
        tapped = new_floats(x.shape[0], len(taps) * x.shape[1]) if taps else None
        self._engine.run(
            native,
            x.data_ptr(),
            rows,
            pages_of(store),
            False,
            list(taps),
            0 if tapped is None else tapped.data_ptr(),
        )
        return x, tapped

    def run_block(self, stack: Stack, x: Tensor, rows: Rows, store: PageStore) -> Tensor:
        """Run the whole stack in one native call; the block's keys and values are scratch."""
        native = own(stack, CpuStack).native
        check_block(rows, store, stack.positions)
        check_cache(stack, store)
        x = stream_of(x, stack, rows)
        self._engine.run(native, x.data_ptr(), rows, pages_of(store), True, [], 0)
        return x

    def write_context(self, stack: Stack, flat: Tensor, rows: Rows, store: PageStore) -> None:
        """Write all layers in one native call."""
        native = own(stack, CpuStack).native
        check(rows, store, stack.positions)
        check_cache(stack, store)
        flat = floats(flat, rows.count, context_width(stack)).clone()
        self._engine.write_context(native, flat.data_ptr(), rows, pages_of(store))

    # -- drafting ------------------------------------------------------------------------------

    def ingest(
        self, context: ContextProjection, taps: Tensor, rows: Rows, store: PageStore
    ) -> None:
        """Write context rows in one native call."""
        held = own(context, CpuContext)
        check(rows, store, held.stack.positions)
        check_cache(held.stack, store)
        taps = floats(taps, rows.count, held.fc.cols)
        self._engine.ingest(
            held.fc,
            held.norm.data_ptr(),
            held.keys_values,
            held.stack.native,
            taps.data_ptr(),
            rows,
            pages_of(store),
        )

    def markov_decode(self, markov: MarkovBias, scores: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Decode every block in one native call; NaN beats nothing."""
        held = own(markov, CpuMarkovBias)
        need(all(block.length >= 0 for block in blocks), "a block's length is below 0")
        count = sum(block.length for block in blocks)
        scores = floats(scores, count, held.out.rows)
        check_tips(blocks, held.tokens.rows)
        chosen = new_ids(count)
        self._engine.markov_decode(
            held.tokens,
            held.out,
            held.ids,
            scores.data_ptr(),
            block_args(blocks),
            chosen.data_ptr(),
        )
        return chosen

    def draft_blocks(
        self, drafter: BlockDrafter, rows: Rows, store: PageStore, blocks: Sequence[Block]
    ) -> tuple[Tensor, Tensor]:
        """Draft all blocks in one native call."""
        held = own(drafter, CpuBlockDrafter)
        weights, size = held.weights, len(held.weights.masks)
        check_block(rows, store, weights.stack.positions)
        check_cache(weights.stack, store)
        for embedding in (weights.embedding, weights.markov.tokens):
            check_tips(blocks, embedding.out_features)
        counts = [group.count for group in rows.groups]
        need(counts == [size] * len(blocks), f"groups of {counts} rows for blocks of {size}")
        lengths = [block.length for block in blocks]
        need(all(0 < n <= size - weights.first for n in lengths), f"lengths {lengths} of {size}")
        chosen, sure = new_ids(sum(lengths)), new_floats(sum(lengths))
        self._engine.draft(
            held.native,
            rows,
            pages_of(store),
            block_args(blocks),
            chosen.data_ptr(),
            sure.data_ptr(),
        )
        return chosen, sure
