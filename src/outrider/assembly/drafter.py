"""The drafter factory: the one place that knows which drafters exist."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outrider.assembly.shipped import shipped_drafters, shipped_for
from outrider.drafters.base import Drafter
from outrider.drafters.hybrid import HybridDrafter
from outrider.drafters.loading import draft_page_nbytes, load_drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.kernels.isolation import isolated
from outrider.loaders.files import existing_folder, user_path
from outrider.loaders.hub import fetch_folder
from outrider.models.target import Target
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent


@dataclass(frozen=True)
class DrafterChoice:
    """A drafter that was found and is not loaded: how many pages it gets depends on their size.

    Attributes:
        copies: copies of the session's own text go first, or alone.
        path: folder of a checkpoint, None without one.
    """

    copies: bool = False
    path: Path | None = None

    def page_nbytes(self, target: Target) -> int:
        """Bytes of a page of its context cache, 0 if it has none.

        Raises:
            DrafterError: its configuration cannot be read.
        """
        if self.path is None:
            return 0
        return draft_page_nbytes(self.path, target.model.kernels)

    @isolated()
    def load(self, target: Target, draft_pages: int) -> Drafter | None:
        """Load it for a target, whose rotary table says how far it has to reach.

        Args:
            target: what it will draft for.
            draft_pages: pages of its context cache.

        Returns:
            None if nothing is to be drafted.

        Raises:
            DrafterError: it cannot be loaded or does not fit the target.
        """
        if self.path is None:
            return NgramDrafter() if self.copies else None
        learned = load_drafter(self.path, target.model, draft_pages, target.model.positions)
        return HybridDrafter(NgramDrafter(), learned) if self.copies else learned


def find_drafter(spec: str, target: Target, progress: Progress = silent) -> DrafterChoice:
    """Find the drafter that ``spec`` names.

    Args:
        spec: "auto" (the one shipped for this target with copies going first, else copies alone),
            "none", "ngram", the name of a shipped drafter, a folder, or a hub id.
        target: what it will draft for.
        progress: told while it downloads.

    Raises:
        DrafterError: there is no such drafter.
    """
    if spec == "none":
        return DrafterChoice()
    if spec in ("auto", "ngram"):
        return DrafterChoice(True, shipped_for(target.config) if spec == "auto" else None)
    shipped = shipped_drafters()
    if spec in shipped:
        return DrafterChoice(path=shipped[spec])
    path = user_path(spec)
    if spec.strip() and existing_folder(path, DrafterError):
        return DrafterChoice(path=path)
    if not spec.strip() or spec[0] in "./~" or spec.count("/") != 1:
        names = ", ".join(("auto", "none", "ngram", *shipped))
        raise DrafterError(
            f"{spec or repr(spec)}: not a drafter; use {names}, a folder with config.json and "
            "safetensors, or "
            "org/name on the hub"
        )
    return DrafterChoice(path=fetch_folder(spec, progress))
