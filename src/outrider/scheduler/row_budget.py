"""How the rows of a pass are divided among the jobs in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Share of the rows beyond each job's own that drafts may take while a prompt waits for rows.
#: Without a bound, drafts of a full house would keep a prompt to one row a round; a smaller one
#: would cut drafts to shorten the wait for first tokens. With the default limits no draft of up to
#: 15 tokens is cut by it. Set by hand; no measurement is recorded.
DRAFTS_BESIDE_PROMPTS: Final = 0.5


@dataclass(frozen=True)
class Wish:
    """What a job in flight would like beyond the one row that it is sure of.

    Attributes:
        draft: rows of drafted tokens.
        prompt: rows of decided tokens, while it feeds its prompt.
    """

    draft: int = 0
    prompt: int = 0


def divide(budget: int, wishes: Sequence[Wish], waiting: bool) -> list[int]:
    """Rows of each job: its own first, then drafts, then prompts with what is left.

    Drafts that do not fit are cut evenly, the longest first. Prompts are served in order.

    Args:
        budget: rows of the pass, at least one per job.
        wishes: of the jobs in flight, oldest first.
        waiting: whether another job waits that could start in this round.
    """
    rows = [1] * len(wishes)
    spare = budget - len(wishes)
    prompts = waiting or any(wish.prompt for wish in wishes)
    drafts = int(spare * DRAFTS_BESIDE_PROMPTS) if prompts else spare
    drafting = sorted(
        (place for place, wish in enumerate(wishes) if wish.draft),
        key=lambda place: wishes[place].draft,
    )
    for done, place in enumerate(drafting):
        granted = min(wishes[place].draft, drafts // (len(drafting) - done))
        rows[place] += granted
        drafts -= granted
        spare -= granted
    for place, wish in enumerate(wishes):
        granted = min(wish.prompt, spare)
        rows[place] += granted
        spare -= granted
    return rows
