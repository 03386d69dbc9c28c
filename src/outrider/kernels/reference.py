"""The reference implementation: plain torch on a CPU, and the meaning of every operator.

Why rows are invariant here. Vendor libraries choose their program by the number of rows, so every
matrix product runs on tiles of a constant number of rows, the last one padded; at a constant shape
a row's bits depend neither on its place nor on its neighbours. Element-wise functions are either
correctly rounded (add, multiply, divide, square root) or evaluated by ``numpy.exp``, whose lanes
are computed alike wherever they stand; torch's own vector and scalar tails differ.

Why products are numpy's. torch's follow settings of the whole process, which any thread may change
at any time: ``set_float32_matmul_precision`` turns them into products of bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels.composed import ComposedKernels
from outrider.kernels.handles import Linear, PageStore, own
from outrider.kernels.philox import gumbel_noise
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows, page_slots
from outrider.kernels.tensors import CPU, index_range, new_floats, zeros
from outrider.kernels.values import RotaryTable
from outrider.kernels.weights import RawWeight

#: Rows of one matrix product; small, because decoding wastes what it does not fill.
TILE_ROWS: Final = 8
#: Most multiplications of one product. BLAS libraries share out larger ones among threads of their
#: own, whose number anyone may change, and which round as the thread did that first made them.
PRODUCT: Final = 1 << 18
#: Rows of one attention tile, all of one session.
ATTEND_ROWS: Final = 16
#: Keys of one span of the online softmax, counted from absolute position 0.
SPAN: Final = 4 * PAGE_TOKENS


#: int8 rows whose largest value is not above this are zero: its inverse would overflow.
SMALLEST_PEAK: Final = 1e-30


class ReferenceLinear(Linear):
    """A dense float32 matrix."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias
        self.out_features, self.in_features = weight.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the float32 matrix."""
        return self.weight.numel() * 4


class ReferenceStore(PageStore):
    """Keys and values, each float32 [layers, pages * PAGE_TOKENS, g, d].

    A store of lower precision holds its rounded rows in float32 all the same.
    """

    def __init__(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: KvDtype
    ) -> None:
        self.layers, self.pages = layers, pages
        self.kv_heads, self.head_dim, self.dtype = kv_heads, head_dim, dtype
        # numpy's zeros are untouched pages of the operating system: no memory until written.
        shape = (layers, pages * PAGE_TOKENS, kv_heads, head_dim)
        # Pages are written in place, by whoever runs a step: they must not be inference tensors.
        with torch.inference_mode(mode=False):
            self.k = torch.from_numpy(np.zeros(shape, dtype=np.float32))
            self.v = torch.from_numpy(np.zeros(shape, dtype=np.float32))

    @property
    def page_nbytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        return 2 * 4 * self.layers * PAGE_TOKENS * self.kv_heads * self.head_dim

    def _page(self, tensor: Tensor, page: int) -> Tensor:
        return tensor[:, page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS]

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page of every layer onto another page."""
        for tensor in (self.k, self.v):
            self._page(tensor, target).copy_(self._page(tensor, source))

    def read_page(self, page: int) -> tuple[Tensor, ...]:
        """Return copies of one page's keys and values."""
        return self._page(self.k, page).clone(), self._page(self.v, page).clone()

    def write_page(self, page: int, contents: tuple[Tensor, ...]) -> None:
        """Overwrite one page's keys and values."""
        for tensor, content in zip((self.k, self.v), contents, strict=True):
            self._page(tensor, page).copy_(content)

    def clear_page(self, page: int, upto: int) -> None:
        """Set the first ``upto`` rows of a page to zero."""
        for tensor in (self.k, self.v):
            self._page(tensor, page)[:, :upto].zero_()


def _rounded(x: Tensor, dtype: KvDtype) -> Tensor:
    """Keys or values, float32 [n, g, d], as pages of that precision keep them."""
    if dtype == "bfloat16":
        return x.to(torch.bfloat16).to(torch.float32)
    if dtype == "float32":
        return x
    peak = x.abs().amax(-1, keepdim=True)  # NaN if one is
    small = peak <= SMALLEST_PEAK
    steps = torch.where(small, 0.0, torch.round(x * (127.0 / peak)))
    return torch.where(peak.isfinite(), steps * (peak / 127.0), torch.nan)


def _exp(x: Tensor) -> Tensor:
    """Exponential whose bits do not depend on an element's place in the tensor."""
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.exp(x.numpy()))


def _dense(weight: Linear) -> ReferenceLinear:
    return own(weight, ReferenceLinear)


def _plain(store: PageStore) -> ReferenceStore:
    return own(store, ReferenceStore)


class ReferenceKernels(ComposedKernels):
    """Every operator in plain torch."""

    def __init__(self) -> None:
        self.name = "reference"
        self.device = torch.device("cpu")
        self.draft_kv_dtype: KvDtype = "float32"  # no other is faster here

    def prepare(self, parts: Sequence[RawWeight], bias: Tensor | None = None) -> Linear:
        """Dequantise to float32 and stack."""
        dense = [part.float() for part in parts]
        weight = dense[0].contiguous() if len(dense) == 1 else torch.cat(dense)
        return ReferenceLinear(weight, None if bias is None else bias.float())

    def allocate(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: KvDtype
    ) -> PageStore:
        """Allocate pages of float32 that holds ``dtype`` exactly."""
        return ReferenceStore(layers, pages, kv_heads, head_dim, dtype)

    def embed(self, table: Linear, ids: Tensor) -> Tensor:
        """Gather rows."""
        return _dense(table).weight[ids]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Normalise row tiles of constant shape, since a mean's order may follow the shape."""
        flat = x.reshape(-1, x.shape[-1])
        mean = new_floats(flat.shape[0], 1)
        for first in range(0, flat.shape[0], TILE_ROWS):
            tile = _padded(flat[first : first + TILE_ROWS], TILE_ROWS)
            mean[first : first + TILE_ROWS] = (tile * tile).mean(-1, keepdim=True)[
                : flat.shape[0] - first
            ]
        mean = torch.where(mean.isfinite(), mean, torch.nan)
        return (flat / torch.sqrt(mean + eps) * weight).reshape(x.shape)

    def linear(self, x: Tensor, weight: Linear) -> Tensor:
        """Multiply row tiles of constant shape."""
        dense = _dense(weight)
        out = new_floats(x.shape[0], dense.out_features)
        for first in range(0, x.shape[0], TILE_ROWS):
            tile = _padded(x[first : first + TILE_ROWS], TILE_ROWS)
            product = torch.from_numpy(_product(tile.numpy(), dense.weight.numpy()))
            out[first : first + TILE_ROWS] = product[: x.shape[0] - first]
        return out if dense.bias is None else out + dense.bias

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """Gate with ``x / (1 + exp(-x))``."""
        gate, up = gate_up.chunk(2, dim=-1)
        return gate / (1.0 + _exp(-gate)) * up

    def rotate(self, x: Tensor, positions: Tensor, table: RotaryTable) -> Tensor:
        """Rotate halves; products and sums are rounded one by one."""
        cos, sin = table.cos[positions][:, None], table.sin[positions][:, None]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def write(self, store: PageStore, layer: int, k: Tensor, v: Tensor, rows: Rows) -> None:
        """Scatter rounded rows to their slots."""
        plain = _plain(store)
        plain.k[layer, rows.slots] = _rounded(k, store.dtype)
        plain.v[layer, rows.slots] = _rounded(v, store.dtype)

    def attend(
        self, q: Tensor, store: PageStore, layer: int, rows: Rows, window: int | None
    ) -> Tensor:
        """Attend tile by tile, each of one session's rows."""
        plain = _plain(store)
        out = new_floats(q.shape[0], q.shape[1] * q.shape[2])
        first = 0
        for group in rows.groups:
            for skip in range(0, group.count, ATTEND_ROWS):
                count = min(ATTEND_ROWS, group.count - skip)
                at = slice(first + skip, first + skip + count)
                positions = index_range(group.start + skip, group.start + skip + count)
                softmax = _SpanSoftmax(q[at], plain.kv_heads)
                low = _low(positions, window, group.floor)
                softmax.visit_pages(plain, layer, group, low, positions + 1)
                out[at] = softmax.result()
            first += group.count
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
        """Attend to cached context, then to the block itself as one more span."""
        plain = _plain(store)
        k, v = _rounded(k, store.dtype), _rounded(v, store.dtype)
        out = new_floats(q.shape[0], q.shape[1] * q.shape[2])
        first = 0
        for group in rows.groups:
            block = slice(first, first + group.count)
            keys = index_range(group.start, group.start + group.count)
            for skip in range(0, group.count, ATTEND_ROWS):
                count = min(ATTEND_ROWS, group.count - skip)
                at = slice(first + skip, first + skip + count)
                positions = keys[skip : skip + count]
                softmax = _SpanSoftmax(q[at], plain.kv_heads)
                low = _low(positions, window, group.floor)
                softmax.visit_pages(plain, layer, group, low, torch.full_like(low, group.start))
                distance = positions[:, None] - keys[None]
                visible = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
                if window is not None:
                    visible &= distance.abs() < window
                softmax.visit(k[block], v[block], visible)
                out[at] = softmax.result()
            first += group.count
        return out

    def argmax(self, x: Tensor, head: Linear) -> Tensor:
        """Argmax of the product; ``numpy.argmax`` takes the first of equal values."""
        logits = self.linear(x, head)
        best = torch.from_numpy(np.argmax(logits.numpy(), axis=-1))
        return torch.where(logits.isfinite().all(-1), best, -1)

    def gumbel(self, seed: int, stream: int, position: int, ids: Tensor) -> Tensor:
        """Philox noise."""
        return torch.from_numpy(gumbel_noise(seed, stream, position, ids.numpy()))


def _padded(x: Tensor, count: int) -> Tensor:
    """Rows of ``x`` in a fresh, aligned buffer of exactly ``count`` rows, zeros after them."""
    tile = zeros(count, *x.shape[1:])
    tile[: x.shape[0]] = x
    return tile


@np.errstate(all="ignore")  # NaN and infinities pass through, whatever the caller set
def _product(tile: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """``tile @ weight.T``: float32 [TILE_ROWS, K] and [N, K] to [TILE_ROWS, N], piece by piece.

    All pieces have as many outputs; the last one may begin within the one before it.
    """
    outputs, inputs = weight.shape
    size = max(1, min(outputs, PRODUCT // (TILE_ROWS * max(inputs, 1))))
    whole = outputs // size * size
    out = np.empty((outputs, TILE_ROWS), dtype=np.float32)
    pieces = weight[:whole].reshape(-1, size, inputs)
    np.matmul(pieces, tile.T, out=out[:whole].reshape(-1, size, TILE_ROWS))
    if whole < outputs:
        np.matmul(weight[-size:], tile.T, out=out[-size:])
    return out.T


@np.errstate(all="ignore")
def _products(left: Tensor, right: Tensor) -> Tensor:
    """Products of every head, float32 [g, m, k] and [g, k, n] to [g, m, n], by tiles of rows."""
    heads, rows, inner = left.shape
    tiles = left.reshape(heads, rows // TILE_ROWS, TILE_ROWS, inner).numpy()
    products = np.matmul(tiles, right.numpy()[:, None])
    return torch.from_numpy(products).reshape(heads, rows, -1)


def _low(positions: Tensor, window: int | None, floor: int) -> Tensor:
    """Lowest visible cached position of every row."""
    if window is None:
        return torch.full_like(positions, floor)
    return (positions - window + 1).clamp(min=floor)


class _SpanSoftmax:
    """Online softmax of one tile of ATTEND_ROWS rows over spans of keys, in order.

    Every product has a constant shape, so a row's bits depend on its own query and keys alone. A
    span in which a row sees nothing leaves its maximum, sum and accumulator unchanged: its weights
    are exactly 0 and its correction is exactly 1.
    """

    def __init__(self, q: Tensor, kv_heads: int) -> None:
        count, heads, width = q.shape
        self.count, self.kv_heads, self.share = count, kv_heads, heads // kv_heads
        tile = _padded(q * (1.0 / width**0.5), ATTEND_ROWS)
        # [g, share * rows, d]: the queries that read the same key head side by side.
        self.q = (
            tile.reshape(ATTEND_ROWS, kv_heads, self.share, width)
            .permute(1, 2, 0, 3)
            .reshape(kv_heads, self.share * ATTEND_ROWS, width)
        )
        lines = (kv_heads, self.share * ATTEND_ROWS, 1)
        self.peak = torch.full(lines, -torch.inf, dtype=torch.float32, device=CPU)
        self.total = zeros(*lines)
        self.mixed = zeros(*lines[:2], width)

    def visit_pages(
        self, store: ReferenceStore, layer: int, group: RowGroup, low: Tensor, high: Tensor
    ) -> None:
        """Visit the cached positions low[r] .. high[r] - 1 of every row r."""
        end = int(high.max())
        for base in range(int(low.min()) // SPAN * SPAN, end, SPAN):
            upto = min(base + SPAN, end)
            slots = page_slots(group.pages, base, upto)
            keys = index_range(base, upto)
            visible = (keys[None] >= low[:, None]) & (keys[None] < high[:, None])
            self.visit(store.k[layer, slots], store.v[layer, slots], visible)

    def visit(self, k: Tensor, v: Tensor, visible: Tensor) -> None:
        """Visit k and v (float32 [m, g, d]) under a mask [count, m]; m may exceed one span."""
        for base in range(0, k.shape[0], SPAN):
            part = slice(base, base + SPAN)
            self._visit_span(k[part], v[part], visible[:, part])

    def _visit_span(self, k: Tensor, v: Tensor, visible: Tensor) -> None:
        seen = torch.zeros((ATTEND_ROWS, SPAN), dtype=torch.bool, device=CPU)
        seen[: self.count, : visible.shape[1]] = visible
        seen = seen.repeat(self.share, 1)[None]
        scores = _products(self.q, _padded(k, SPAN).permute(1, 2, 0).contiguous())
        scores = torch.where(seen, scores, -torch.inf)
        peak = torch.maximum(self.peak, scores.amax(-1, keepdim=True))
        finite = torch.where(peak == -torch.inf, 0.0, peak)
        weights = _exp(scores - finite)
        keep = _exp(self.peak - finite)
        self.total = self.total * keep + weights.sum(-1, keepdim=True)
        values = _padded(v, SPAN).permute(1, 0, 2).contiguous()
        self.mixed = self.mixed * keep + _mix(weights, values, seen)
        self.peak = peak

    def result(self) -> Tensor:
        """The attention output of the rows that are not padding, float32 [count, h d]."""
        width = self.q.shape[-1]
        out = (self.mixed / self.total).reshape(self.kv_heads, self.share, ATTEND_ROWS, width)
        return out.permute(2, 0, 1, 3)[: self.count].reshape(self.count, -1)


def _mix(weights: Tensor, values: Tensor, seen: Tensor) -> Tensor:
    """Weighted values [g, rows, d]. A value that is not finite reaches the rows that see it alone.

    A product alone would not do: 0 times NaN is NaN.
    """
    finite = values.isfinite()
    mixed = _products(weights, torch.where(finite, values, 0.0))
    if bool(finite.all()):
        return mixed
    spoilt = seen.to(torch.float32).expand(len(values), -1, -1) @ (~finite).to(torch.float32)
    return torch.where(spoilt > 0, torch.nan, mixed)
