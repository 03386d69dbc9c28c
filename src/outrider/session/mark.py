"""Where a session stood at a round boundary."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.types.telemetry import Telemetry


@dataclass(frozen=True)
class Mark:
    """Where a session stood at a round boundary.

    Attributes:
        tokens: of its stream.
        committed: of them, held by the caches.
        observed: rows that its drafter had observed, 0 without one.
        sampler: what its sampler had counted.
        telemetry: a copy of its counters.
    """

    tokens: int
    committed: int
    observed: int
    sampler: tuple[int, ...]
    telemetry: Telemetry
