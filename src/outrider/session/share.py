"""What one round passes between its phases: planned work, shares of a pass, verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outrider.draft_length.decision import DraftDecision
from outrider.drafters.base import Proposal
from outrider.session.session import Mark, SpecSession


@dataclass(frozen=True)
class Work:
    """One session's share of a round.

    Attributes:
        session: whose.
        feed: decided tokens to feed.
        draft_length: most tokens to draft after them; 0 unless ``feed`` reaches the tip.
    """

    session: SpecSession
    feed: int
    draft_length: int


@dataclass
class Share:
    """One session's rows in a pass. Fixed when the round begins, whatever is emitted later.

    Attributes:
        work: what was planned.
        fed: the decided tokens it feeds.
        reaches_tip: whether they end with the tip, so that this round decides tokens; prefill
            chunks before the last do not.
        mark: where the session stood.
        decision: what this round drafts; None if it cannot draft.
        draft: what the drafter proposed; no tokens for plain decoding and prefill.
    """

    work: Work
    fed: list[int]
    reaches_tip: bool
    mark: Mark
    decision: DraftDecision | None = None
    draft: Proposal = field(default_factory=Proposal)

    @classmethod
    def of(cls, work: Work) -> Share:
        """The share of planned work, with nothing drafted yet."""
        stream = work.session.stream
        fed = stream.tokens[stream.committed : stream.committed + work.feed]
        return cls(work, fed, work.feed == stream.pending, work.session.mark())

    def roll_back(self) -> None:
        """Return the session to where it stood before the round."""
        self.work.session.roll_back(self.mark)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the rows, in order."""
        return self.fed + self.draft.tokens

    @property
    def judged(self) -> int:
        """Rows, counted from the last, whose logits decide tokens."""
        return 1 + len(self.draft.tokens) if self.reaches_tip else 0


class PassOutput(ABC):
    """What one target pass offers to the verdict. Judged rows are numbered over all shares."""

    @abstractmethod
    def finite_rows(self, share: int) -> int:
        """How many of a share's rows, from the first on, have finite states."""

    @abstractmethod
    def first_fault(self, share: int, rows: int) -> str:
        """The first part of the model whose output is not finite in a share's first ``rows``."""

    @abstractmethod
    def argmax(self, rows: Sequence[int]) -> list[int]:
        """Most likely token of each judged row, -1 where a logit is not finite."""

    @abstractmethod
    def draw(
        self,
        rows: Sequence[int],
        temperatures: Sequence[float],
        seeds: Sequence[int],
        positions: Sequence[int],
    ) -> list[int]:
        """Gumbel-max draw at each judged row, keyed by (seed, position); -1 as for ``argmax``."""

    @abstractmethod
    def logits(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Logits of judged rows, float32 [len(rows), V]."""

    @abstractmethod
    def taps(self, share: int, count: int) -> Tensor | None:
        """Tapped states of the first ``count`` rows of a share, [count, taps H], or None."""

    @abstractmethod
    def settle(self, share: int, count: int) -> None:
        """Commit the first ``count`` rows of a share and forget the rest."""


@dataclass(frozen=True)
class Verdict:
    """What a round decided for one session.

    Attributes:
        share: its rows.
        emitted: the new tokens, cut where the stream ended.
        rows: how many of its rows become committed.
        fault: why nothing could be decided; the session then stands where it stood.
    """

    share: Share
    emitted: list[int]
    rows: int
    fault: Exception | None = None
