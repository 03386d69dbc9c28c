"""How often copies were right in one text, by the length of the match."""

from __future__ import annotations

from typing import Final

#: Accuracy of a copied token after a match of 1, 2, ... tokens, before a text has shown its own. By
#: judgement: a few tokens of evidence outweigh it.
PRIOR_ACCURACY: Final = (0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)
#: Tokens of evidence that the prior counts for, and that are remembered at most: texts change.
PRIOR_WEIGHT: Final = 8.0
MOST_EVIDENCE: Final = 60.0


class MatchStatistics:
    """How often a copied token was right, by the length of the match that led to it.

    A copied token lengthens the match by one, so the i-th token of a copy counts for a match that
    is i longer. Copies are judged by the text that came, whether or not the target saw them.
    """

    def __init__(self, longest: int) -> None:
        self._tried = [0.0] * longest
        self._correct = [0.0] * longest

    def accuracy(self, matched: int) -> float:
        """Estimated chance that a token is right after a match of ``matched`` tokens."""
        at = min(matched, len(self._tried)) - 1
        prior = PRIOR_ACCURACY[min(at, len(PRIOR_ACCURACY) - 1)]
        return (self._correct[at] + PRIOR_WEIGHT * prior) / (self._tried[at] + PRIOR_WEIGHT)

    def record(self, matched: int, correct: bool) -> None:
        """Note whether a token after a match of ``matched`` tokens was right."""
        at = min(matched, len(self._tried)) - 1
        fade = min(1.0, MOST_EVIDENCE / (self._tried[at] + 1.0))
        self._tried[at] = self._tried[at] * fade + 1.0
        self._correct[at] = self._correct[at] * fade + float(correct)

    def copy(self) -> MatchStatistics:
        """Return an independent copy."""
        twin = MatchStatistics(len(self._tried))
        twin._tried, twin._correct = list(self._tried), list(self._correct)
        return twin
