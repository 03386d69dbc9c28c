"""One session's rows in a round."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.draft_length.decision import DraftDecision
from outrider.drafters.base import Proposal
from outrider.session.mark import Mark
from outrider.session.session import SpecSession


@dataclass
class SessionRows:
    """One session's rows in a pass. Fixed when the round begins, whatever is emitted later.

    Attributes:
        session: whose.
        fed: the decided tokens it feeds.
        draft_length: most tokens to draft after them; 0 unless they end with the tip.
        reaches_tip: whether they end with the tip, so that this round decides tokens; prefill
            chunks before the last do not.
        mark: where the session stood.
        decision: what this round drafts; None if it cannot draft.
        draft: what the drafter proposed; no tokens for plain decoding and prefill.
    """

    session: SpecSession
    fed: list[int]
    draft_length: int
    reaches_tip: bool
    mark: Mark
    decision: DraftDecision | None = None
    draft: Proposal = field(default_factory=Proposal)

    @classmethod
    def planned(cls, session: SpecSession, feed: int, draft_length: int) -> SessionRows:
        """The rows of a planned round, with nothing drafted yet.

        Args:
            session: whose.
            feed: decided tokens to feed.
            draft_length: most tokens to draft after them.
        """
        stream = session.stream
        fed = stream.tokens[stream.committed : stream.committed + feed]
        return cls(session, fed, draft_length, feed == stream.pending, session.mark())

    def roll_back(self) -> None:
        """Return the session to where it stood before the round."""
        self.session.roll_back(self.mark)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the rows, in order."""
        return self.fed + self.draft.tokens

    @property
    def judged(self) -> int:
        """Rows, counted from the last, whose logits decide tokens."""
        return 1 + len(self.draft.tokens) if self.reaches_tip else 0
