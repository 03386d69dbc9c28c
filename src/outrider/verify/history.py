"""What penalties know about the tokens before a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class TokenHistory:
    """Tokens of one session so far.

    Emitting each token before the next row is judged gives every row of a round the history it
    would have had in plain decoding.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self.prompt = frozenset(prompt)
        self.counts: Counter[int] = Counter()
        self.emitted = 0

    def emit(self, token: int) -> None:
        """Count one emitted token."""
        self.counts[token] += 1
        self.emitted += 1
