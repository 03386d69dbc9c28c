"""What the native kernels keep: packed matrices and pages, and checks that C++ leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels import _native
from outrider.kernels.blockwise import Block
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.table import Linear, PageStore, RotaryTable, Stack


class CpuLinear(Linear):
    """A packed matrix."""

    def __init__(self, native: _native.Matrix) -> None:
        self.native = native
        self.out_features, self.in_features = native.rows, native.cols

    @property
    def nbytes(self) -> int:
        """Bytes of the packed tiles and the bias."""
        return self.native.nbytes


class CpuStore(PageStore):
    """Keys and values of any precision; a page of all layers is one run of bytes."""

    def __init__(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: KvDtype
    ) -> None:
        self.layers, self.pages = layers, pages
        self.kv_heads, self.head_dim, self.dtype = kv_heads, head_dim, dtype
        self.native = _native.Pages(layers, pages, kv_heads, head_dim, dtype)

    @property
    def page_nbytes(self) -> int:
        """Bytes of one page over all layers, keys and values."""
        return self.native.page_nbytes

    def _checked(self, page: int) -> int:
        if not 0 <= page < self.pages:
            raise IndexError(f"page {page} of {self.pages}")
        return page

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page of every layer onto another page."""
        self.native.copy(self._checked(source), self._checked(target))

    def read_page(self, page: int) -> tuple[Tensor, ...]:
        """Return a copy of one page, uint8 [page_nbytes]."""
        contents = torch.empty(self.page_nbytes, dtype=torch.uint8)
        self.native.read(self._checked(page), contents.data_ptr())
        return (contents,)

    def write_page(self, page: int, contents: tuple[Tensor, ...]) -> None:
        """Overwrite one page."""
        (content,) = contents
        assert content.dtype == torch.uint8
        assert content.numel() == self.page_nbytes
        self.native.write(self._checked(page), content.contiguous().data_ptr())

    def clear_page(self, page: int, upto: int) -> None:
        """Set the first ``upto`` rows of a page to zero."""
        self.native.clear(self._checked(page), upto)


def packed(weight: Linear) -> _native.Matrix:
    """The native matrix of a weight that these kernels prepared."""
    assert isinstance(weight, CpuLinear), "weight was prepared by another implementation"
    return weight.native


def pages_of(store: PageStore) -> _native.Pages:
    """The native pages of a store that these kernels allocated."""
    assert isinstance(store, CpuStore), "pages were allocated by another implementation"
    return store.native


def floats(x: Tensor) -> Tensor:
    """``x`` itself if it is contiguous float32, else such a copy."""
    return x.to(torch.float32).contiguous()


def stream_of(x: Tensor, stack: Stack, rows: Rows) -> Tensor:
    """A copy of embedded rows, which becomes the residual stream; C++ does not look at shapes."""
    shape = (rows.count, stack.layers[0].qkv.in_features)
    assert x.shape == shape, f"rows of shape {list(x.shape)}, not {list(shape)}"
    return x.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def check(rows: Rows, store: PageStore, table: RotaryTable | None = None) -> None:
    """Refuse rows outside the page tables, the store or the rotary table: C++ does not look."""
    for group in rows.groups:
        _checkpages_of(group, group.start + group.count, store)
        _within_angles(group, table)


def check_block(rows: Rows, store: PageStore, table: RotaryTable | None = None) -> None:
    """As ``check``, for rows of which only the context before them is cached."""
    for group in rows.groups:
        _checkpages_of(group, group.start, store)
        _within_angles(group, table)


def _checkpages_of(group: RowGroup, end: int, store: PageStore) -> None:
    if len(group.pages) * PAGE_TOKENS < end:
        raise IndexError(f"{len(group.pages)} pages do not reach position {end - 1}")
    if group.pages and not 0 <= min(group.pages) <= max(group.pages) < store.pages:
        raise IndexError(f"page ids must lie in 0 .. {store.pages - 1}")


def _within_angles(group: RowGroup, table: RotaryTable | None) -> None:
    end = group.start + group.count
    if table is not None and end > table.cos.shape[0]:
        raise IndexError(f"position {end - 1} is outside the rotary table")


def check_tips(blocks: Sequence[Block], tokens: Linear) -> None:
    """Refuse tips outside the embedding."""
    tips = [block.tip for block in blocks]
    if tips and not 0 <= min(tips) <= max(tips) < tokens.out_features:
        raise IndexError(f"token ids must lie in 0 .. {tokens.out_features - 1}")


def block_args(blocks: Sequence[Block]) -> list[tuple[int, int, float, int, int]]:
    """Blocks as C++ takes them."""
    return [(b.length, b.tip, b.temperature, b.seed, b.position) for b in blocks]
