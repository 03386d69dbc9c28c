"""The drafter factory: the one place that knows which drafters exist."""

from __future__ import annotations

from pathlib import Path

from outrider.build.shipped import shipped_drafters, shipped_for
from outrider.build.target import Target
from outrider.drafters.base import Drafter
from outrider.drafters.hybrid import HybridDrafter
from outrider.drafters.loading import load_drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.kernels.isolation import isolated
from outrider.loaders.hub import fetch_folder
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent


@isolated()
def make_drafter(
    spec: str, target: Target, draft_pages: int, progress: Progress = silent
) -> Drafter | None:
    """Make the drafter that ``spec`` names, for one target.

    Args:
        spec: "auto", "none", "ngram", the name of a shipped drafter, a folder, or a hub id.
        target: what it will draft for.
        draft_pages: pages of its context cache.
        progress: told while it downloads.

    Returns:
        None if nothing is to be drafted.

    Raises:
        DrafterError: it cannot be loaded or does not fit the target.
    """
    if spec == "none":
        return None
    if spec == "auto":
        return _auto(target, draft_pages)
    if spec == "ngram":
        return NgramDrafter()
    shipped = shipped_drafters()
    if spec in shipped:
        return load_drafter(shipped[spec], target.model, draft_pages)
    path = Path(spec).expanduser()
    if spec.strip() and path.is_dir():
        return load_drafter(path, target.model, draft_pages)
    if not spec.strip() or path.exists() or spec[0] in "./~" or spec.count("/") != 1:
        names = ", ".join(("auto", "none", "ngram", *shipped))
        raise DrafterError(
            f"{spec or repr(spec)}: not a drafter; use {names}, a folder with config.json and "
            "safetensors, or "
            "org/name on the hub"
        )
    return load_drafter(fetch_folder(spec, progress), target.model, draft_pages)


def _auto(target: Target, draft_pages: int) -> Drafter:
    """The drafter shipped for this target, with copies going first; else copies alone."""
    path = shipped_for(target.config)
    if path is None:
        return NgramDrafter()
    return HybridDrafter(NgramDrafter(), load_drafter(path, target.model, draft_pages))
