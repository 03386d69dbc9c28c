"""What a drafter is asked for: the policy's choice, which changes no token."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from outrider.config.engine import EngineConfig
from outrider.draft_length.decision import DraftDecision, DraftMode
from outrider.draft_length.policy import DraftLengthPolicy
from outrider.drafters.base import DrafterFault, DraftRequest, Proposal
from outrider.engine import Request
from outrider.models.target import Target
from outrider.session.session_rows import SessionRows
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, adversaries, oracle
from support.run import alone, make_engine, serve, truth, views
from support.tiny import TINY, tiny_target

REQUESTS = [
    ([5, 9, 11, 5, 9, 11, 5], SamplingParams(temperature=1.0, seed=4, max_tokens=50)),
    ([3, 1, 4, 1, 5], SamplingParams(seed=3, temperature=0.0, max_tokens=50, ignore_eos=True)),
    ([2, 7, 1, 8], SamplingParams(temperature=0.8, seed=9, max_tokens=50, ignore_eos=True)),
]


class Noting(Scripted):
    """Notes the lengths that it was asked for."""

    def __init__(self, guess: Any) -> None:
        super().__init__("noting", guess)
        self.asked: list[int] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
        self.asked += [request.computed for request in requests if request.budget]
        return super().propose(requests)


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target()


@pytest.fixture(scope="module")
def plain(target: Any) -> Any:
    return alone(target, REQUESTS)


@pytest.mark.parametrize("kind", ["right", "half", "wrong"])
def test_tokens_are_equal_whatever_is_asked(
    target: Any, plain: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths chosen by lot; all that is drafted is judged."""
    luck, chosen = random.Random(7), []

    def decide(policy: DraftLengthPolicy, most: int) -> DraftDecision:
        chosen.append(luck.randint(1, most))
        return DraftDecision(DraftMode.FULL, chosen[-1])

    monkeypatch.setattr(DraftLengthPolicy, "decide", decide)
    monkeypatch.setattr(DraftLengthPolicy, "keep", lambda policy, made, drafted, *rest: drafted)
    drafter = Noting(adversaries(truth(plain), TINY.vocab_size)[kind].guess)
    config = EngineConfig(max_num_seqs=3)
    assert views(serve(target, drafter, REQUESTS, config=config)) == views(plain)
    drafter.asked = drafter.asked[-len(chosen) :]
    assert drafter.asked == chosen
    assert len(set(chosen)) > 4


def test_a_fixed_length_is_asked_for_in_full(target: Any, plain: Any) -> None:
    drafter = Noting(adversaries(truth(plain), TINY.vocab_size)["wrong"].guess)
    outputs = serve(target, drafter, REQUESTS, config=EngineConfig(max_num_seqs=1, draft_length=9))
    assert views(outputs) == views(plain)
    assert set(drafter.asked[1:40]) == {9}
    drafter = Noting(oracle(truth(plain)))
    serve(target, drafter, REQUESTS, config=EngineConfig(max_num_seqs=1, draft_length=9))
    assert drafter.asked[0] == 9


def test_a_draft_beyond_its_length_is_cut(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whatever kind of integers it holds, tokens are plain ones."""
    right = oracle(truth(plain))
    drafter = Noting(lambda known, length: [np.int64(n) for n in right(known, length + 1)])
    batches: list[SessionRows] = []
    engine = make_engine(target, drafter, EngineConfig(draft_length=3))
    monkeypatch.setattr(engine._drafting, "record", lambda rows, accepted: batches.append(rows))
    prompt, params = REQUESTS[1]
    engine.add(Request(list(prompt), params))
    while engine.has_unfinished:
        engine.step()
    drafts = [rows.draft.tokens for rows in batches]
    assert max(map(len, drafts)) == 3
    assert {type(token) for draft in drafts for token in draft} == {int}


def test_full_and_free_drafts_are_one_batch(
    target: Target, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions whose policy wants nothing are asked with the others, without a budget."""
    turns = itertools.cycle([DraftDecision(DraftMode.FULL, 2), DraftDecision(DraftMode.BRIEF)])
    monkeypatch.setattr(DraftLengthPolicy, "decide", lambda policy, most: next(turns))
    batches: list[list[tuple[int, int]]] = []

    class Batches(Scripted):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal | DrafterFault]:
            batches.append([(request.most, request.budget) for request in requests])
            return super().propose(requests)

    drafter = Batches("batches", oracle(truth(plain)))
    outputs = serve(target, drafter, REQUESTS[1:], config=EngineConfig(max_num_seqs=3))
    assert views(outputs) == views(plain[1:])
    whole = [batch for batch in batches if len(batch) == 2]
    assert len(whole) > 8
    assert all(sorted(budget for _, budget in batch) == [0, 2] for batch in whole)
    assert all(most == 15 for batch in whole[:8] for most, _ in batch)
