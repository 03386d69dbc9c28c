"""What a round decided for one session."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.session.session_rows import SessionRows


@dataclass(frozen=True)
class Verdict:
    """What a round decided for one session.

    Attributes:
        rows: its rows.
        emitted: the new tokens, cut where the stream ended.
        kept: how many of its rows become committed.
        fault: why nothing could be decided; the session then stands where it stood.
    """

    rows: SessionRows
    emitted: list[int]
    kept: int
    fault: Exception | None = None
