"""Prompt lookup: copies of the session's own text."""

from outrider.drafters.ngram.drafter import NgramDrafter, NgramOptions, NgramState, NgramTail

__all__ = ["NgramDrafter", "NgramOptions", "NgramState", "NgramTail"]
