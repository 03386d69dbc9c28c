"""What passes and drafts cost on this machine, measured before the first round."""

from __future__ import annotations

import logging
from typing import Final

from torch import Tensor

from outrider.caches.pool import PagePool
from outrider.draft_length.cost_curve import CostCurve
from outrider.draft_length.goodput import Goodput
from outrider.drafters.base import CommittedRows, Drafter, DraftRequest, DraftSampling
from outrider.runner.runner import Runner
from outrider.types.clock import Clock

_log = logging.getLogger("outrider")

#: Rows that a profile observes per draft, about as many as a good round commits.
ROWS: Final = 4
#: Drafts of a profile; the first costs several times a later one (dev/LOG.md, "Can the draft length
#: be chosen from running estimates alone?"), so that two are left to take the least of.
TURNS: Final = 3


def measured_goodput(
    runner: Runner, drafter: Drafter, pool: PagePool, longest: int, clock: Clock
) -> Goodput:
    """Prices of a target's passes and of a drafter's drafts.

    Args:
        runner: feeds the target.
        drafter: drafts.
        pool: free pages of the target's cache.
        longest: most rows of a session.
        clock: times both.
    """
    curve = CostCurve(runner.profile(pool, longest))
    taps = runner.scratch_taps(pool, min(ROWS, longest))
    return Goodput(curve, draft_seconds(drafter, taps, min(longest, runner.vocab_size), clock))


def draft_seconds(drafter: Drafter, taps: Tensor | None, longest: int, clock: Clock) -> float:
    """Seconds of one full draft, the observation of its rows included.

    A scratch session observes a few rows and drafts; the first draft is a warm-up. A drafter that
    fails here fails in its rounds too, where faults are counted.

    Args:
        drafter: drafts.
        taps: tapped states of some rows, or None if the drafter reads none.
        longest: most rows of a session, and different tokens. Below four, nothing is worth a draft,
            and it is free.
        clock: times it.
    """
    seconds: list[float] = []
    state, whole = drafter.begin(DraftSampling()), drafter.max_draft
    # All turns, and a tip after the last of them, must have positions and tokens.
    most = min(longest, drafter.max_position or longest)
    count = min(ROWS, (most - 1) // TURNS)
    try:
        # No token comes twice: a copy would be found at once, and price the draft at nothing.
        for turn in range(TURNS if count > 0 else 0):
            start = turn * count
            tokens = list(range(start, start + count))
            rows = CommittedRows(tokens, start, None if taps is None else taps[:count])
            began = clock()
            drafter.observe([state], [rows])
            drafter.propose([DraftRequest(state, start + count, whole, whole)])
            seconds.append(clock() - began)
    except Exception as fault:  # whatever a drafter does, decoding goes on
        _log.debug("profiling the drafter failed: %r", fault)
    finally:
        state.release()
    return min(seconds[1:], default=0.0)
