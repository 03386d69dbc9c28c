"""Outrider: lossless speculative decoding. The names below are the public Python interface."""

from __future__ import annotations

# Known by its name to type checkers; the module that has it takes milliseconds to import, in which
# an interrupt of a command would be a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

    from outrider.llm.llm import LLM
    from outrider.types.errors import (
        DrafterError,
        ModelError,
        NumericsError,
        OutriderError,
        RequestError,
    )
    from outrider.types.output import CompletionOutput, RequestOutput
    from outrider.types.sampling import SamplingParams

__version__: Final = "0.1.0"

__all__ = [
    "LLM",
    "CompletionOutput",
    "DrafterError",
    "ModelError",
    "NumericsError",
    "OutriderError",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "__version__",
]

_HOMES: Final = {
    "LLM": "outrider.llm.llm",
    "CompletionOutput": "outrider.types.output",
    "DrafterError": "outrider.types.errors",
    "ModelError": "outrider.types.errors",
    "NumericsError": "outrider.types.errors",
    "OutriderError": "outrider.types.errors",
    "RequestError": "outrider.types.errors",
    "RequestOutput": "outrider.types.output",
    "SamplingParams": "outrider.types.sampling",
}


def __getattr__(name: str) -> object:
    """Import public names on first use, so that ``import outrider`` stays instant."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)
