"""``outrider inspect``: what a model or a drafter is, and what running it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.console import progress_bars, write, write_json
from outrider.cli.options import AsJson, DeviceName, KernelsName, Threads, spread

if TYPE_CHECKING:
    from outrider.config.model import ModelConfig
    from outrider.kernels.table import Kernels
    from outrider.kernels.weights import RawWeight
    from outrider.loaders.checkpoint import Checkpoint

#: Context length that memory is quoted for, unless the model's own is shorter.
QUOTED_CONTEXT = 2048
#: Rows of each matrix that are prepared to learn how an implementation stores it.
SAMPLE_ROWS = 64

Facts = dict[str, Any]


def describe_model(checkpoint: Checkpoint, kernels: Kernels) -> Facts:
    """Return the facts about a model; weights are sampled, not loaded."""
    config = checkpoint.config
    per_token = _kv_bytes_per_token(config, kernels)
    per_pass = _bytes_per_pass(checkpoint, kernels)
    context = min(QUOTED_CONTEXT, config.max_position)
    return {
        "kind": "model",
        "source": checkpoint.source,
        "architecture": config.architecture,
        "parameters": config.num_parameters,
        "layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "query_heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "sliding_windows": _windows(config.windows),
        "rotary": f"{config.rotary.kind}, theta {config.rotary.theta:g}",
        "tied_embeddings": config.tied,
        "vocabulary": config.vocab_size,
        "context": config.max_position,
        "tensor_types": checkpoint.quantization,
        "stored_bytes": checkpoint.nbytes,
        "kernels": kernels.name,
        "kv_bytes_per_token": per_token,
        "weight_bytes_per_pass": per_pass,
        "quoted_context": context,
        "memory_bytes": per_pass + context * per_token,
    }


def _windows(windows: tuple[int | None, ...]) -> str:
    """Sum up the layers' attention windows in a phrase."""
    sizes = {window for window in windows if window is not None}
    if not sizes:
        return "none"
    sliding = sum(window is not None for window in windows)
    return f"{sliding} of {len(windows)} layers, {', '.join(map(str, sorted(sizes)))} tokens"


def _kv_bytes_per_token(config: ModelConfig, kernels: Kernels) -> int:
    from outrider.kernels.rows import PAGE_TOKENS

    store = kernels.allocate(config.num_layers, 1, config.num_kv_heads, config.head_dim)
    return store.page_nbytes // PAGE_TOKENS


def _bytes_per_pass(checkpoint: Checkpoint, kernels: Kernels) -> int:
    """Bytes of all matrices that a pass reads, as this implementation keeps them.

    An implementation stores rows of one format and width alike, so a few of each kind tell.
    """
    from outrider.loaders.checkpoint import EMBEDDING, tensor_shapes

    config = checkpoint.config
    per_row: dict[tuple[str, int], float] = {}
    total = 0.0
    for name, shape in tensor_shapes(config).items():
        if len(shape) != 2 or (name == EMBEDDING and not config.tied):
            continue
        weight = checkpoint.tensor(name, shape)
        kind = (weight.format, shape[1])
        if kind not in per_row:
            per_row[kind] = _row_bytes(weight, kernels)
        total += shape[0] * per_row[kind]
    return round(total)


def _row_bytes(weight: RawWeight, kernels: Kernels) -> float:
    import torch

    rows = min(SAMPLE_ROWS, weight.shape[0])
    return kernels.prepare([weight.rows(torch.arange(rows))]).nbytes / rows


@spread
def inspect(
    source: Annotated[
        str, typer.Argument(metavar="MODEL|DRAFTER", help="What --model or --drafter would take.")
    ],
    device: DeviceName = "auto",
    kernels: KernelsName = None,
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Show what a model or drafter is and costs."""
    from outrider.kernels.select import select
    from outrider.loaders.open import open_model

    table = select(device, threads, kernels)
    with progress_bars() as progress, open_model(source, progress) as checkpoint:
        facts = describe_model(checkpoint, table)
    if json:
        write_json(facts)
    else:
        _print(facts)


def _print(facts: Mapping[str, Any]) -> None:
    """Write one fact a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        write(f"{name.replace('_', ' '):<{width}}  {_show(name, value)}\n")


def _show(name: str, value: object) -> str:
    """Return a value for people: bytes with a unit, thousands with commas, none for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in name:
        return f"{value / 2**20:,.1f} MiB" if value >= 2**20 else f"{value:,} bytes"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
