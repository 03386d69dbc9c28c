"""Draft lengths by goodput, against curves whose best length is known."""

from __future__ import annotations

import random

from outrider.draft_length.cost_curve import CostCurve
from outrider.draft_length.decision import DraftDecision, DraftMode
from outrider.draft_length.goodput import Goodput
from outrider.draft_length.outcome import DraftOutcome
from outrider.draft_length.policy import DraftLengthPolicy

FLAT = [(1, 1.0), (8, 1.2), (16, 1.5)]
STEEP = [(1, 1.0), (2, 2.0), (16, 16.0)]
BRIEF = DraftDecision(DraftMode.BRIEF)


def priced(
    profile: list[tuple[int, float]] = FLAT, price: float = 0.1, expected: float = 0.9
) -> Goodput:
    return Goodput(CostCurve(profile), price, [expected])


def drafted_round(policy: DraftLengthPolicy, hold: int, most: int = 8) -> int:
    """One round whose first ``hold`` tokens would be accepted; how many it has judged."""
    decision = policy.decide(most)
    kept = policy.keep(decision, most, (), copied=False) if decision.full else 0
    policy.record(decision, DraftOutcome(kept, min(hold, kept)))
    return kept


def simulate(profile: list[tuple[int, float]], price: float, chance: float, rounds: int) -> float:
    """Speed over plain decoding when every position is accepted with ``chance``."""
    luck = random.Random(1)
    goodput = priced(profile, max(price, 1e-6), 0.5)
    policy = DraftLengthPolicy(goodput, 0.0, 8)
    truth = CostCurve(profile)
    time, tokens = 0.0, 0
    for _ in range(rounds):
        hold = 0
        while hold < 8 and luck.random() < chance:
            hold += 1
        length = drafted_round(policy, hold)
        cost = price if length else None
        goodput.observe(1 + length, 1, cost, truth.seconds(1 + length))
        time += truth.seconds(1 + length) + (price if length else 0.0)
        tokens += 1 + min(hold, length)
    return tokens * truth.seconds(1) / time


def ask(policy: DraftLengthPolicy, hold: int, rounds: int, most: int = 32) -> list[int]:
    """What a policy asks for when up to ``hold`` tokens of each draft of up to 7 are accepted."""
    asked = []
    for _ in range(rounds):
        decision = policy.decide(most)
        kept = min(decision.asked, 7)
        policy.record(decision, DraftOutcome(kept, min(hold, kept)))
        if decision.full:
            asked.append(decision.asked)
    return asked


def test_asks_for_what_the_text_accepts() -> None:
    goodput = priced()
    policy = DraftLengthPolicy(goodput, 0.8, 32)
    assert ask(policy, 1, 1) == [8]
    hard = ask(policy, 1, 400)
    assert set(hard[-100:]) == {1, 2}
    other = DraftLengthPolicy(goodput, 0.8, 32)
    assert set(ask(other, 1, 50)) <= {1, 2, 3}, "others' texts count"
    easy = ask(policy, 7, 30)
    assert easy[8:] == [8 if tokens > 7 else 7 for tokens in easy[8:]], "grows at once"
    greedy = DraftLengthPolicy(goodput, 0.0, 32)
    assert ask(greedy, 7, 1) == [8], "drawn tokens are apart"


def test_copies_do_not_tell_what_to_ask_for() -> None:
    policy = DraftLengthPolicy(priced(), 0.0, 32)
    asked = []
    for _ in range(200):
        decision = policy.decide(32)
        asked.append(decision.asked)
        policy.record(decision, DraftOutcome(20, 20, False, [0.9] * 20, copied=True))
    assert set(asked) == {8, 0}, "0 where the price of a plain pass is learnt"


def test_a_short_draft_that_held_says_nothing() -> None:
    """The end of the stream cut it."""
    policy = DraftLengthPolicy(priced(), 0.0, 32)
    assert set(ask(policy, 3, 100, most=3)) == {3}
    assert ask(policy, 7, 1) == [8]


def test_the_price_of_a_plain_pass_stays_known() -> None:
    policy = DraftLengthPolicy(priced(), 0.0, 8)
    lengths = [drafted_round(policy, 8) for _ in range(300)]
    assert 1 <= lengths.count(0) <= 5


def test_new_sessions_start_from_what_others_met() -> None:
    goodput = priced()
    first = DraftLengthPolicy(goodput, 0.0, 8)
    for _ in range(60):
        drafted_round(first, 0)
    assert DraftLengthPolicy(goodput, 0.0, 8).acceptance.conditionals(1)[0] < 0.4
    sampled = DraftLengthPolicy(goodput, 0.8, 8)
    assert sampled.acceptance.conditionals(1) == [0.9], "drawn tokens are apart"


def test_copies_and_predictions_are_calibrated_apart() -> None:
    policy = DraftLengthPolicy(priced(), 0.0, 8)
    sure = [0.9] * 4
    for _ in range(200):
        policy.record(BRIEF, DraftOutcome(4, 0, False, sure, copied=True))
    assert policy.keep(BRIEF, 4, sure, copied=False) == 4
    assert policy.keep(BRIEF, 4, sure, copied=True) <= 1


def test_deciding_changes_nothing() -> None:
    """A round that is interrupted and repeated decides the same, as often as it is."""
    twins = [DraftLengthPolicy(priced(FLAT, 0.3, 0.1), 0.0, 8) for _ in range(2)]
    seen = set()
    for turn in range(900):
        hold = 8 if turn > 60 else 0
        for _ in range(turn % 4):
            decision = twins[0].decide(8)
            twins[0].keep(decision, 8, (), copied=False)
        decisions = [policy.decide(8) for policy in twins]
        assert decisions[0] == decisions[1]
        seen.add(decisions[0].mode)
        assert drafted_round(twins[0], hold) == drafted_round(twins[1], hold)
    assert seen == set(DraftMode)


def test_never_much_slower_than_plain() -> None:
    for profile in (FLAT, STEEP):
        for price in (0.0, 0.2, 1.0):
            for chance in (0.0, 0.05, 0.3, 0.7, 0.95):
                assert simulate(profile, price, chance, 2000) > 0.97


def test_takes_the_gain_where_there_is_one() -> None:
    assert simulate(FLAT, 0.1, 0.9, 2000) > 3.0
    assert simulate(FLAT, 0.1, 0.6, 2000) > 1.5
    assert simulate(STEEP, 0.0, 0.3, 2000) > 0.98


def test_notices_that_the_text_has_changed() -> None:
    goodput = priced(FLAT, 0.3, 0.1)
    policy = DraftLengthPolicy(goodput, 0.0, 8)
    goodput.observe(1, 1, 0.3, 1.0)
    chosen = [drafted_round(policy, 8 if turn > 300 else 0) for turn in range(900)]
    assert sum(chosen[100:300]) < 20
    assert sorted(chosen[-100:])[2] > 4, "all but the plain rounds that keep prices known"


def test_shared_passes_make_rows_dearer() -> None:
    chances = [0.6, 0.36, 0.2, 0.1, 0.05, 0.02, 0.01]
    alone, crowded = priced(FLAT, 0.01), priced(STEEP, 0.01)
    crowded.sessions = 8
    assert alone.length(chances) >= 3
    assert crowded.length(chances) == 0
    assert alone.cut([0.9, 0.01]) == 1


def test_a_draft_that_pays_brings_the_first_probe_back() -> None:
    """Probes in vain double the wait, 8, 16, 32, ...; drafting in full begins anew at 8."""
    policy = DraftLengthPolicy(priced(FLAT, 0.3, 0.01), 0.0, 8)

    def plain_rounds() -> int:
        count = 0
        while policy.decide(8).mode is DraftMode.BRIEF:
            policy.record(policy.decide(8), DraftOutcome(0, 0))
            count += 1
        policy.record(DraftDecision(DraftMode.PROBE, 0), DraftOutcome(0, 0))
        return count

    assert [plain_rounds() for _ in range(3)] == [7, 15, 31]
    policy.record(DraftDecision(DraftMode.FULL, 1), DraftOutcome(1, 0))
    assert [plain_rounds() for _ in range(2)] == [7, 15]


def test_a_stream_that_ends_amid_a_draft_does_not_shorten_later_ones() -> None:
    goodput = priced()
    policy = DraftLengthPolicy(goodput, 0.0, 32)
    for _ in range(50):
        policy.record(DraftDecision(DraftMode.FULL, 8), DraftOutcome(7, 3, ended=True))
    assert policy.decide(32) == DraftDecision(DraftMode.FULL, 8)
    assert goodput.statistics(0.0).requested.tokens == 8.0
