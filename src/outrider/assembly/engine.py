"""Puts engines together. Nobody else knows in which order their parts are made.

The drafter is found, the bytes of the caches are divided between it and the target, the target
reaches as far as the cache does, and the drafter is loaded with the pages that it got.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.assembly.drafter import find_drafter
from outrider.config.engine import EngineConfig
from outrider.drafters.base import Drafter
from outrider.engine.budget import CacheBudget, cache_budget
from outrider.engine.engine import Engine
from outrider.kernels.isolation import isolated
from outrider.models.target import Target
from outrider.types.progress import Progress, silent


@dataclass(frozen=True)
class EngineParts:
    """What engines are made of: several of the same parts, of which one at a time serves.

    Attributes:
        target: the model, reaching as far as its sessions can.
        drafter: None decodes plainly.
        config: limits and choices. With others, as long as they allow the same caches, the other
            parts stay what they are.
        budget: what the caches get.
    """

    target: Target
    drafter: Drafter | None
    config: EngineConfig
    budget: CacheBudget

    def engine(self) -> Engine:
        """Make an engine.

        Raises:
            RequestError: the system refuses the memory of its caches.
        """
        return Engine(self.target, self.drafter, self.config, self.budget)


@isolated()
def assemble(
    target: Target, drafter: str, config: EngineConfig, progress: Progress = silent
) -> EngineParts:
    """Find and load a drafter for a target, and divide the caches between the two.

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
    return EngineParts(fitted, choice.load(fitted, budget.pages), config, budget)


@isolated()
def assemble_with(target: Target, drafter: Drafter | None, config: EngineConfig) -> EngineParts:
    """Divide the caches between a target and a drafter that exists already.

    Args:
        target: the model.
        drafter: None decodes plainly.
        config: limits and choices.

    Raises:
        RequestError: a limit cannot be kept.
    """
    budget = cache_budget(target, config, 0 if drafter is None else drafter.page_nbytes)
    return EngineParts(target.reaching(budget.max_model_len), drafter, config, budget)
