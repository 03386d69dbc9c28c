"""Telemetry: what drafting did for a session or a request, and what it cost an engine."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RoundSeconds:
    """Wall-clock seconds of an engine's rounds; totals since the engine was made.

    Attributes:
        total: whole rounds, from the plan to the released sessions.
        asking: asking the drafter for drafts.
        observing: committing rows and letting the drafter observe them.
    """

    total: float = 0.0
    asking: float = 0.0
    observing: float = 0.0

    @property
    def drafting_share(self) -> float:
        """Share of the time that went to the drafter; 0.0 before any round."""
        return (self.asking + self.observing) / self.total if self.total else 0.0

    def __add__(self, other: RoundSeconds) -> RoundSeconds:
        return RoundSeconds(
            self.total + other.total,
            self.asking + other.asking,
            self.observing + other.observing,
        )

    def __sub__(self, earlier: RoundSeconds) -> RoundSeconds:
        return RoundSeconds(
            self.total - earlier.total,
            self.asking - earlier.asking,
            self.observing - earlier.observing,
        )


@dataclass
class Telemetry:
    """Counters of a session's rounds; all are totals since the session began.

    Attributes:
        rounds: target passes that emitted at least one token.
        drafted: draft tokens that a target pass judged.
        accepted: draft tokens among them that were kept.
        accepted_per_position: index i counts the rounds whose draft token i was kept.
        drafted_per_position: index i counts the rounds that drafted at least i + 1 tokens.
        faults: rounds that went plain because the drafter failed.
        prompts: rounds that finished a prompt, or one again after a preemption, and so could not
            draft.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)
    faults: int = 0
    prompts: int = 0

    def record(self, drafted: int, accepted: int) -> None:
        """Count one round that judged ``drafted`` tokens and kept the first ``accepted``."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        for counts, upto in (
            (self.accepted_per_position, accepted),
            (self.drafted_per_position, drafted),
        ):
            counts.extend([0] * (upto - len(counts)))
            for position in range(upto):
                counts[position] += 1

    @property
    def acceptance_length(self) -> float:
        """Tokens per round that could draft, the target's own included; 0.0 before any."""
        rounds = self.rounds - self.prompts
        return 1.0 + self.accepted / rounds if rounds else 0.0

    @property
    def drafted_rounds_share(self) -> float:
        """Share of the rounds that could draft in which a draft was judged; 0.0 before any."""
        rounds = self.rounds - self.prompts
        return self.drafted_per_position[0] / rounds if rounds and self.drafted else 0.0

    @property
    def drafted_per_round(self) -> float:
        """Drafted tokens per round that could draft, rounds without a draft included."""
        rounds = self.rounds - self.prompts
        return self.drafted / rounds if rounds else 0.0

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of the tokens drafted at each position that were accepted."""
        kept = self.accepted_per_position
        padded = kept + [0] * (len(self.drafted_per_position) - len(kept))
        return [a / d for a, d in zip(padded, self.drafted_per_position, strict=True)]

    def snapshot(self) -> Telemetry:
        """Return an independent copy."""
        return Telemetry(
            self.rounds,
            self.drafted,
            self.accepted,
            list(self.accepted_per_position),
            list(self.drafted_per_position),
            self.faults,
            self.prompts,
        )

    def delta_since(self, earlier: Telemetry) -> Telemetry:
        """Return what was counted after ``earlier``, a snapshot of this same session."""

        def minus(now: list[int], then: list[int]) -> list[int]:
            padded = then + [0] * (len(now) - len(then))
            return [a - b for a, b in zip(now, padded, strict=True)]

        return Telemetry(
            self.rounds - earlier.rounds,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            minus(self.accepted_per_position, earlier.accepted_per_position),
            minus(self.drafted_per_position, earlier.drafted_per_position),
            self.faults - earlier.faults,
            self.prompts - earlier.prompts,
        )

    def add(self, other: Telemetry) -> None:
        """Add another session's counters to this one."""
        self.rounds += other.rounds
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.faults += other.faults
        self.prompts += other.prompts
        for mine, theirs in (
            (self.accepted_per_position, other.accepted_per_position),
            (self.drafted_per_position, other.drafted_per_position),
        ):
            mine.extend([0] * (len(theirs) - len(mine)))
            for position, count in enumerate(theirs):
                mine[position] += count
