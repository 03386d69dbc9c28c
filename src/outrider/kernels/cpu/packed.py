"""What the native kernels keep: packed matrices and pages of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.config.kv import KvDtype
from outrider.kernels import _native
from outrider.kernels.cpu.arguments import need
from outrider.kernels.handles import Linear, PageStore, own
from outrider.kernels.rows import PAGE_TOKENS
from outrider.kernels.tensors import CPU
from outrider.kernels.values import Block
from outrider.kernels.weights import BLOCK_FORMATS, FLOAT_FORMATS, RawWeight


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
        contents = torch.empty(self.page_nbytes, dtype=torch.uint8, device=CPU)
        self.native.read(self._checked(page), contents.data_ptr())
        return (contents,)

    def write_page(self, page: int, contents: tuple[Tensor, ...]) -> None:
        """Overwrite one page.

        Raises:
            ValueError: the contents are no page of this store.
        """
        (content,) = contents
        fits = content.dtype == torch.uint8 and content.numel() == self.page_nbytes
        need(fits and content.device.type == "cpu", "these are no contents of such a page")
        self.native.write(self._checked(page), content.contiguous().data_ptr())

    def clear_page(self, page: int, upto: int) -> None:
        """Set the first ``upto`` rows of a page to zero."""
        need(0 <= upto <= PAGE_TOKENS, f"{upto} rows of {PAGE_TOKENS}")
        self.native.clear(self._checked(page), upto)


def packed(weight: Linear) -> _native.Matrix:
    """The native matrix of a weight that these kernels prepared; TypeError for another's."""
    return own(weight, CpuLinear).native


def pages_of(store: PageStore) -> _native.Pages:
    """The native pages of a store that these kernels allocated; TypeError for another's."""
    return own(store, CpuStore).native


def stored(part: RawWeight) -> Tensor:
    """A weight's data as C++ reads it: contiguous, of its format's dtype and size.

    Raises:
        TypeError: the data lies outside CPU memory, or has another dtype than the format.
        ValueError: the data has another size than the shape asks for.
    """
    rows, cols = part.shape
    if part.format in FLOAT_FORMATS:
        dtype, width = FLOAT_FORMATS[part.format], cols
    else:
        block, nbytes = BLOCK_FORMATS[part.format]
        dtype, width = torch.uint8, cols // block * nbytes
        need(cols % block == 0, f"{part.name}: rows of {cols} do not fill blocks of {block}")
    if part.data.dtype != dtype or part.data.device.type != "cpu":
        raise TypeError(f"{part.name}: {part.data.dtype} on {part.data.device} is not {dtype}")
    found = list(part.data.shape)
    need(found == [rows, width], f"{part.name}: data of shape {found}, not {[rows, width]}")
    return part.data.contiguous()


def block_args(blocks: Sequence[Block]) -> list[tuple[int, int, float, int, int]]:
    """Blocks as C++ takes them."""
    return [(b.length, b.tip, b.temperature, b.seed, b.position) for b in blocks]
