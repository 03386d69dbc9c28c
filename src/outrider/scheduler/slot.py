"""One job's part of a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from outrider.scheduler.job import J


@dataclass(frozen=True)
class Slot(Generic[J]):
    """One job's part of a round: tokens to feed and the most to draft.

    Attributes:
        job: whose.
        feed: decided tokens to feed, at least 1.
        draft_length: most tokens to draft after them.
    """

    job: J
    feed: int
    draft_length: int

    @property
    def rows(self) -> int:
        """Most rows of the pass that it fills."""
        return self.feed + self.draft_length
