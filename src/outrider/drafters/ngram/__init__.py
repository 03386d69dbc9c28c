"""Prompt lookup: copies of the session's own text."""

from outrider.drafters.ngram.drafter import NgramDrafter, NgramOptions, NgramTail
from outrider.drafters.ngram.state import NgramState

__all__ = ["NgramDrafter", "NgramOptions", "NgramState", "NgramTail"]
