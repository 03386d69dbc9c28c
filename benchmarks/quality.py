"""What speed costs in quality: every code path and precision of the KV cache against float32.

Run ``python benchmarks/quality.py [--model NAME] [--tokens N] [--json FILE]``. A fixed text, half
of it the licence and half of it source code of this package, is fed to the model in passes of many
rows. For every code path that runs here and every precision it prints the perplexity, and in how
many rows the most likely token is that of the reference: dequantised weights, keys and values in
float32, plain torch. No figure depends on the machine's speed. The portable path and the reference
take minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, get_args

import numpy as np
import torch
from cpu import installed, machine
from numpy.typing import NDArray

from outrider.cli.console import progress_bars
from outrider.config.kv import KvDtype
from outrider.kernels.rows import PAGE_TOKENS, RowGroup, Rows
from outrider.kernels.select import PATHS, select
from outrider.models.target import Target, load_target
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import ModelError, OutriderError
from outrider.types.progress import Progress

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PRECISIONS: Final[tuple[KvDtype, ...]] = get_args(KvDtype)
ROWS: Final = 128  # of a pass


@dataclass(frozen=True)
class Reading:
    """What a model makes of the text.

    Attributes:
        losses: per row, minus the logarithm of the next token's probability.
        best: per row, the most likely token.
    """

    losses: NDArray[np.float64]
    best: NDArray[np.int64]

    @property
    def perplexity(self) -> float:
        """Exponential of the mean loss."""
        return math.exp(self.losses.mean())


@dataclass(frozen=True)
class Line:
    """One line of the table; shares are of the reference in float32."""

    kernels: str
    kv_cache: str
    perplexity: float
    perplexity_over_float32: float
    top_token_equal: float


def text_tokens(tokenizer: Tokenizer, count: int) -> list[int]:
    """``count`` tokens, the first half of the licence, the others of code."""
    files = [*sorted((REPOSITORY / "src/outrider/caches").glob("*.py"))]
    code = tokenizer.encode("".join(path.read_text() for path in files), add_special=False)
    licence = tokenizer.encode((REPOSITORY / "LICENSE").read_text(), add_special=True)
    tokens = [*licence[: count - count // 2], *code[: count // 2]]
    if len(tokens) < count:
        raise SystemExit(f"quality: --tokens: the text has only {len(tokens)} tokens")
    return tokens


def read(target: Target, tokens: Sequence[int], dtype: KvDtype, progress: Progress) -> Reading:
    """Feed the text, one session from position 0."""
    model, label = target.model, f"{target.model.kernels.name}, {dtype}"
    ids = torch.tensor(tokens, dtype=torch.int64)
    pages = list(range(-(-len(tokens) // PAGE_TOKENS)))
    store = model.allocate(len(pages), dtype)
    losses, best = [], []
    for first in range(0, len(tokens) - 1, ROWS):
        count = min(ROWS, len(tokens) - 1 - first)
        rows, every = Rows((RowGroup(first, count, pages),)), torch.arange(count)
        hidden = model.forward(ids[first : first + count], rows, store, every).hidden
        logits = model.logits(hidden).double()
        following = ids[first + 1 : first + 1 + count]
        losses.append(logits.logsumexp(-1) - logits[every, following])
        best.append(logits.argmax(-1))
        progress(label, first + count, len(tokens) - 1)
    return Reading(torch.cat(losses).numpy(), torch.cat(best).numpy())


def load(options: argparse.Namespace, path: str, progress: Progress) -> Target | None:
    """The model on one code path, or None where this machine cannot run it."""
    try:
        kernels = select("cpu", options.threads, path)
    except ModelError as error:
        print(f"{path}: left out: {error}", file=sys.stderr)
        return None
    return load_target(options.model, kernels, None, progress)


def compare(options: argparse.Namespace, progress: Progress) -> Iterator[tuple[Line, Target]]:
    """Lines in the order of the table, the reference in float32 first."""
    exact: Reading | None = None
    for path in dict.fromkeys(("reference", *options.kernels)):
        target = load(options, path, progress)
        if target is None:
            continue
        tokens = text_tokens(target.tokenizer, min(options.tokens, target.max_model_len))
        precisions = [d for d in reversed(PRECISIONS) if d in options.kv_cache_dtype]
        if path == "reference":
            wanted = precisions if path in options.kernels else []
            precisions = list(dict.fromkeys(("float32", *wanted)))
        for dtype in precisions:
            reading = read(target, tokens, dtype, progress)
            exact = exact or reading
            same = float((reading.best == exact.best).mean())
            share = reading.perplexity / exact.perplexity
            yield Line(path, dtype, reading.perplexity, share, same), target


def row(line: Line) -> str:
    """A line as it is printed."""
    change = f"{100 * (line.perplexity_over_float32 - 1):+.2f}%"
    cells = f"{line.kernels:<11}  {line.kv_cache:<8}  {line.perplexity:10.4f}  {change:>8}"
    return f"{cells}  {100 * line.top_token_equal:9.2f}%"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="what outrider's --model takes")
    parser.add_argument("--tokens", type=int, default=2800, help="length of the text")
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kernels", nargs="+", choices=PATHS, default=PATHS)
    parser.add_argument("--kv-cache-dtype", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    options = parser.parse_args()
    if options.tokens < 2:
        parser.error("--tokens must be at least 2")
    return options


def main() -> None:
    """Measure, print and write."""
    options = parse()
    torch.set_num_threads(1)  # threads that spin cost more than they give on a busy machine
    lines: list[Line] = []
    print(f"{'kernels':<11}  {'kv cache':<8}  {'perplexity':>10}  {'change':>8}  top token equal")
    try:
        with progress_bars() as progress:
            for line, target in compare(options, progress):
                lines.append(line)
                last = target
                print(row(line), flush=True)
    except OutriderError as error:
        raise SystemExit(f"quality: {error}") from None
    if options.json:
        tokens = text_tokens(last.tokenizer, min(options.tokens, last.max_model_len))
        report = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": {
                "python": platform.python_version(),
                **{package: installed(package) for package in ("outrider", "torch", "numpy")},
            },
            "model": Path(options.model).name,
            "signature": last.signature,
            "tokens": len(tokens),
            "text": hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16],
            "rows_of_a_pass": ROWS,
            "lines": [asdict(line) for line in lines],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
