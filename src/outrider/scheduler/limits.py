"""Bounds of one round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one round.

    Attributes:
        max_num_seqs: jobs that share a round.
        max_num_batched_tokens: rows of its pass, drafted ones included; at least ``max_num_seqs``,
            so that every job in flight has a row.
        draft_length: most tokens to draft per job.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    draft_length: int

    def __post_init__(self) -> None:
        """Check that every job can have a row.

        Raises:
            ValueError: it cannot.
        """
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"{self.max_num_batched_tokens} rows for {self.max_num_seqs} jobs in flight"
            )
