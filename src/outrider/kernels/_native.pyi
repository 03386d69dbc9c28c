"""Types of the native extension. Tensors are passed as addresses."""

from collections.abc import Sequence

from outrider.kernels.rows import Rows

class Matrix:
    rows: int
    cols: int
    nbytes: int

class Pages:
    page_nbytes: int
    def __init__(
        self, layers: int, pages: int, kv_heads: int, head_dim: int, dtype: str, /
    ) -> None: ...
    def copy(self, source: int, target: int, /) -> None: ...
    def read(self, page: int, out: int, /) -> None: ...
    def write(self, page: int, contents: int, /) -> None: ...
    def clear(self, page: int, upto: int, /) -> None: ...

class Stack:
    def __init__(
        self,
        layers: Sequence[tuple[int, Matrix, int, int, Matrix, int, Matrix, Matrix, int, bool]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        hidden: int,
        eps: float,
        cos: int,
        sin: int,
        /,
    ) -> None: ...

class BlockDraftWeights:
    def __init__(
        self,
        stack: Stack,
        embedding: Matrix,
        scale: float,
        masks: int,
        rows: int,
        first: int,
        norm: int,
        head: Matrix,
        tokens: Matrix,
        out: Matrix,
        ids: int,
        confidence: int,
        /,
    ) -> None: ...

class Team:
    """How many threads a run should use; times in nanoseconds."""

    def __init__(self, most: int, /) -> None: ...
    def size(self, now: int, /) -> int: ...
    def note(self, now: int, took: int, waited: int, /) -> None: ...

class Engine:
    threads: int
    def __init__(self, path: str, threads: int, /) -> None: ...
    def pack(self, parts: Sequence[tuple[int, str, int, int]], bias: int, /) -> Matrix: ...
    def norm(self, x: int, weight: int, eps: float, n: int, cols: int, out: int, /) -> None: ...
    def linear(self, matrix: Matrix, x: int, n: int, out: int, /) -> None: ...
    def swiglu(self, x: int, n: int, cols: int, out: int, /) -> None: ...
    def rotate(
        self,
        x: int,
        positions: int,
        n: int,
        heads: int,
        head_dim: int,
        cos: int,
        sin: int,
        out: int,
        /,
    ) -> None: ...
    def embed(self, matrix: Matrix, ids: int, n: int, out: int, /) -> None: ...
    def best(
        self,
        head: Matrix,
        x: int,
        n: int,
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
        out: int,
        /,
    ) -> None: ...
    def markov_decode(
        self,
        tokens: Matrix,
        out: Matrix,
        ids: int,
        scores: int,
        blocks: Sequence[tuple[int, int, float, int, int]],
        chosen: int,
        /,
    ) -> None: ...
    def gumbel(
        self, seed: int, stream: int, position: int, ids: int, count: int, out: int, /
    ) -> None: ...
    def write(self, pages: Pages, layer: int, k: int, v: int, rows: Rows, /) -> None: ...
    def attend(
        self, pages: Pages, layer: int, q: int, rows: Rows, heads: int, window: int, out: int, /
    ) -> None: ...
    def attend_block(
        self,
        pages: Pages,
        layer: int,
        q: int,
        k: int,
        v: int,
        rows: Rows,
        heads: int,
        window: int,
        causal: bool,
        out: int,
        /,
    ) -> None: ...
    def run(
        self,
        stack: Stack,
        x: int,
        rows: Rows,
        pages: Pages,
        block: bool,
        taps: Sequence[int],
        tapped: int,
        /,
    ) -> None: ...
    def draft(
        self,
        weights: BlockDraftWeights,
        rows: Rows,
        pages: Pages,
        blocks: Sequence[tuple[int, int, float, int, int]],
        chosen: int,
        confidences: int,
        /,
    ) -> None: ...
    def ingest(
        self,
        fc: Matrix,
        norm: int,
        keys_values: Matrix,
        stack: Stack,
        taps: int,
        rows: Rows,
        pages: Pages,
        /,
    ) -> None: ...
    def write_context(self, stack: Stack, flat: int, rows: Rows, pages: Pages, /) -> None: ...

def paths() -> list[str]: ...
