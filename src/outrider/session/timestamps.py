"""When the steps of a session's life happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Timestamps:
    """Times of a session, in seconds of the engine's clock; None until it happens.

    Attributes:
        arrived: its request was added.
        started: the first round began that fed its rows.
        first_token: the round ended that emitted its first token.
        last_token: the round ended that emitted its last token so far.
    """

    arrived: float
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def stamp(self, started: float, ended: float, emitted: int) -> None:
        """Note a round that ran from ``started`` to ``ended``.

        Args:
            started: when it began.
            ended: when its rows were committed.
            emitted: tokens that the session has emitted so far.
        """
        if self.started is None:
            self.started = started
        if emitted:
            if self.first_token is None:
                self.first_token = ended
            self.last_token = ended
