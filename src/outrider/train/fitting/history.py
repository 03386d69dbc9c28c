"""How a training went so far."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LogEntry:
    """One line of the log.

    Attributes:
        step, seconds: progress, resumed runs included.
        ce, tv: cross-entropy, and total variation (0 while it is not computed), of live drafts.
        tau: acceptance length on held-out rows, None between evaluations.
        positions: share of rounds whose draft k was kept.
    """

    step: int
    seconds: float
    ce: float
    tv: float
    tau: float | None = None
    positions: tuple[float, ...] = ()


@dataclass
class History:
    """What happened so far."""

    step: int = 0
    seconds: float = 0.0
    log: list[LogEntry] = field(default_factory=list)
