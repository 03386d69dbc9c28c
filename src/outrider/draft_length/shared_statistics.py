"""What drafts met with in all sessions of one kind."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.draft_length.acceptance import AcceptanceStatistics
from outrider.draft_length.calibration import Calibration
from outrider.draft_length.requested_length import RequestedLength


class SharedStatistics:
    """What drafts of all sessions of one kind have met with; new sessions start from it.

    Attributes:
        acceptance: of full drafts.
        requested: how many tokens were worth asking for.
    """

    def __init__(self, expected: Sequence[float]) -> None:
        """Start from ``expected``, acceptance by position before any was seen."""
        self.acceptance = AcceptanceStatistics(expected)
        self.requested = RequestedLength()
        self._predictions = Calibration()
        self._copies = Calibration()

    def calibration(self, copied: bool) -> Calibration:
        """How far confidences of copies, or of predictions, hold."""
        return self._copies if copied else self._predictions
