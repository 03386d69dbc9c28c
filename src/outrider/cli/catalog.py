"""``outrider models`` and ``outrider drafters``: what is on this machine and can be used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.cli.console import write, write_json
from outrider.cli.options import AsJson
from outrider.cli.table import write_table
from outrider.types.errors import OutriderError
from outrider.types.sizes import show_bytes


@dataclass(frozen=True)
class Entry:
    """One model or drafter; the fields are those of the JSON form.

    Attributes:
        name: what --model or --drafter takes.
        kind: an architecture, or a kind of drafter.
        origin: "built in", "shipped" with a package, or "cached" from the hub.
        bytes: of its files; 0 if it has none.
        target: the models a drafter fits, in words; "" for a model.
        path: its file or folder, None if it has none.
    """

    name: str
    kind: str
    origin: str
    bytes: int
    target: str
    path: str | None


def models(json: AsJson = False) -> None:
    """List the models on this machine that --model can load.

    These are the embedded one and what the Hugging Face hub's cache holds; a model is listed if its
    files are whole and its architecture is supported. Folders and .gguf files elsewhere are taken
    by their path.
    """
    entries = [*_embedded_model(), *_cached_models()]
    if json:
        write_json({"models": [asdict(entry) for entry in entries]})
        return
    rows = [(entry.name, entry.kind, entry.origin, show_bytes(entry.bytes)) for entry in entries]
    _list("Models", ("name", "architecture", "origin", "size"), rows)


def drafters(json: AsJson = False) -> None:
    """List the drafters on this machine that --drafter can load.

    These are the built-in ones, those that come with this package, and what the Hugging Face hub's
    cache holds. Folders elsewhere are taken by their path.
    """
    entries = [*_built_in(), *_shipped_drafters(), *_cached_drafters()]
    if json:
        write_json({"drafters": [asdict(entry) for entry in entries]})
        return
    rows = [
        (
            entry.name,
            entry.kind,
            entry.origin,
            show_bytes(entry.bytes) if entry.bytes else "-",
            entry.target,
        )
        for entry in entries
    ]
    _list("Drafters", ("name", "kind", "origin", "size", "for models of"), rows)


def _list(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        write_table(title, columns, rows)
    else:
        write(f"{title}: none; outrider generate --model org/name fetches one from the hub\n")


def _embedded_model() -> Iterator[Entry]:
    from outrider.loaders.open import SMOLLM2
    from outrider.loaders.smollm2 import smollm2_path

    try:
        path = smollm2_path()
    except OutriderError:
        return
    yield from _model(SMOLLM2, path, "shipped")


def _cached_models() -> Iterator[Entry]:
    from outrider.loaders.cached import cached_repositories
    from outrider.loaders.hub import GGUF_SUFFIX

    for name, folder in cached_repositories():
        yield from _model(name, folder, "cached")
        for file in sorted(folder.rglob(f"*{GGUF_SUFFIX}")):
            yield from _model(f"{name}:{file.relative_to(folder).as_posix()}", file, "cached")


def _model(name: str, path: Path, origin: str) -> Iterator[Entry]:
    """The model in a file or folder, unless it cannot be opened."""
    from outrider.loaders.open import open_model

    try:
        with open_model(str(path)) as checkpoint:
            kind = checkpoint.config.architecture
            checkpoint.tokenizer()
    except OutriderError:
        return
    yield Entry(name, kind, origin, _size(path), "", str(path))


def _built_in() -> Iterator[Entry]:
    from outrider.assembly.shipped import shipped_drafters

    best = "shipped or ngram" if shipped_drafters() else "ngram"
    yield Entry("auto", best, "built in", 0, "any", None)
    yield Entry("ngram", "prompt lookup", "built in", 0, "any", None)
    yield Entry("none", "plain decoding", "built in", 0, "any", None)


def _shipped_drafters() -> Iterator[Entry]:
    from outrider.assembly.shipped import shipped_drafters

    for name, folder in shipped_drafters().items():
        yield from _drafter(name, folder, "shipped")


def _cached_drafters() -> Iterator[Entry]:
    from outrider.loaders.cached import cached_repositories

    for name, folder in cached_repositories():
        yield from _drafter(name, folder, "cached")


def _drafter(name: str, folder: Path, origin: str) -> Iterator[Entry]:
    """The drafter in a folder, unless there is none or it cannot be read."""
    from outrider.cli.inspect.facts import describe_drafter
    from outrider.kernels.reference import ReferenceKernels

    try:
        facts = describe_drafter(folder, ReferenceKernels())
    except OutriderError:
        return
    layers = facts["target_layers"]
    depth = f"{layers} layers, " if isinstance(layers, int) else ""
    fits = f"{depth}width {facts['hidden_size']}"
    yield Entry(name, facts["kind"], origin, _size(folder), fits, str(folder))


def _size(path: Path) -> int:
    """Bytes of a file, or of what lies in a folder itself."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
