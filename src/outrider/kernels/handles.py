"""What an implementation of the operators prepares or allocates; opaque above the kernels floor."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from outrider.config.kv import KvDtype


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
