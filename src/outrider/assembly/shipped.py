"""Drafters that come with the package."""

from __future__ import annotations

from pathlib import Path

from outrider.config.model import ModelConfig
from outrider.loaders.fields import Fields, read_json


def shipped_drafters() -> dict[str, Path]:
    """Folders of shipped drafters by name, best first for each target."""
    # Not importlib.resources: an editable install answers with a path that is not one folder.
    root = Path(__file__).resolve().parents[1] / "assets"
    return {path.parent.name: path.parent for path in sorted(root.glob("*/config.json"))}


def shipped_for(target: ModelConfig) -> Path | None:
    """The shipped drafter for a target of this shape, or None.

    The shape alone decides: a drafter can never change an answer, and one that does not help a
    fine-tuned twin of its target is soon left out, as its goodput is low.
    """
    for path in shipped_drafters().values():
        if _fits(read_json(path / "config.json"), target):
            return path
    return None


def _fits(fields: Fields, target: ModelConfig) -> bool:
    shape = (target.hidden_size, target.vocab_size, target.num_layers)
    names = ("hidden_size", "vocab_size", "num_target_layers")
    return tuple(fields.integer(name) for name in names) == shape
