"""What an implementation of the operators prepares or allocates; opaque above the kernels floor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from torch import Tensor

from outrider.config.kv import KvDtype

Handle = TypeVar("Handle")


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


class Stack:
    """Decoder layers, prepared to run one after the other; opaque above the kernels floor.

    Attributes:
        layers, kv_heads, head_dim: the shape of the pages that it reads and writes.
        hidden_size: width H of the residual stream.
        eps: added to the mean square in every norm.
        positions: rows of its rotary table; no row may stand at or beyond it.
        nbytes: bytes that the products of one pass read.
    """

    layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    eps: float
    positions: int
    nbytes: int


class ContextProjection:
    """A target's tapped states to context rows of all layers; opaque above the kernels floor."""


class MarkovBias:
    """A low-rank bias by the token before, prepared; opaque above the kernels floor."""


class BlockDrafter:
    """All weights between a tip and its drafted block, prepared; opaque above the kernels floor."""


def own(handle: object, kind: type[Handle]) -> Handle:
    """Narrow a handle to the class of the implementation that is given it.

    Raises:
        TypeError: it is another implementation's.
    """
    if not isinstance(handle, kind):
        raise TypeError(f"a {type(handle).__name__} belongs to another implementation")
    return handle
