"""``outrider inspect``: what a model or a drafter is, and what running it costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.cli.console import progress_bars, write, write_json
from outrider.cli.options import AsJson, DeviceName, KernelsName, KvCacheDtypeName, Threads
from outrider.types.errors import DrafterError, ModelError
from outrider.types.progress import Progress
from outrider.types.sizes import show_bytes


def inspect(
    source: Annotated[
        str, typer.Argument(metavar="MODEL|DRAFTER", help="What --model or --drafter would take.")
    ],
    device: DeviceName = "auto",
    kernels: KernelsName = None,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtypeName = "auto",
    json: AsJson = False,
) -> None:
    """Show what a model or drafter is and costs."""
    from outrider.cli.inspect.facts import describe_built_in, describe_drafter, describe_model
    from outrider.kernels.select import select
    from outrider.loaders.open import open_model

    table = select(device, threads, kernels)
    with progress_bars() as progress:
        if (built_in := describe_built_in(source)) is not None:
            facts = built_in
        elif (folder := _drafter_folder(source, progress)) is not None:
            facts = describe_drafter(folder, table)
        else:
            with open_model(source, progress) as checkpoint:
                facts = describe_model(checkpoint, table, kv_cache_dtype)
    if json:
        write_json(facts)
    else:
        _print(facts)


def _drafter_folder(source: str, progress: Progress) -> Path | None:
    """Return the folder of a drafter checkpoint, or None if ``source`` is anything else."""
    from outrider.assembly.shipped import shipped_drafters
    from outrider.drafters.layouts import read_kind
    from outrider.loaders.fields import read_json
    from outrider.loaders.files import user_path
    from outrider.loaders.hub import fetch_folder, is_hub_id

    shipped = shipped_drafters()
    if source in shipped:
        return shipped[source]
    folder = user_path(source)
    if not folder.exists() and is_hub_id(source):
        folder = fetch_folder(source, progress)
    try:
        read_kind(read_json(folder / "config.json"))
    except (DrafterError, ModelError):
        return None
    return folder


def _print(facts: Mapping[str, Any]) -> None:
    """Write one fact a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        write(f"{name.replace('_', ' '):<{width}}  {_show(name, value)}\n")


def _show(name: str, value: object) -> str:
    """Return a value for people: bytes with a unit, thousands with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and "bytes" in name:
        return show_bytes(value)
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
