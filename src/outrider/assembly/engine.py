"""Puts an engine together: the drafter is found, the caches are divided, both get their pages."""

from __future__ import annotations

from outrider.assembly.drafter import find_drafter
from outrider.config.engine import EngineConfig
from outrider.engine.budget import CacheBudget, cache_budget
from outrider.engine.engine import Engine
from outrider.models.target import Target
from outrider.types.progress import Progress, silent


def make_engine(
    target: Target, drafter: str, config: EngineConfig, progress: Progress = silent
) -> tuple[Engine, CacheBudget]:
    """Make an engine, and say what its caches get.

    Args:
        target: the model.
        drafter: what ``find_drafter`` takes.
        config: limits and choices.
        progress: told while a drafter downloads.

    Raises:
        OutriderError: the drafter cannot be loaded, or a limit cannot be kept.
    """
    choice = find_drafter(drafter, target, progress)
    budget = cache_budget(target, config, choice.page_nbytes(target))
    fitted = target.reaching(budget.max_model_len)
    return Engine(fitted, choice.load(fitted, budget.pages), config, budget), budget
