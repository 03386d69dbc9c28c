"""Hybrid drafting: copies where a match is long, predictions elsewhere, both always up to date."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from drafter_toys import (
    H,
    V,
    draft,
    drafts,
    load,
    make_target,
    mtp_config,
    mtp_tensors,
    same,
    taps_of,
    zlab_config,
)

from outrider.drafters.base import (
    CommittedRows,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    Proposal,
)
from outrider.drafters.hybrid import HybridDrafter, HybridState
from outrider.drafters.ngram import NgramDrafter, NgramOptions
from outrider.kernels.philox import STREAM_TOKEN

REPEATING = [11, 12, 13, 14, 15, 16, 17, 18] * 3
FRESH = [(7 * i * i + 3 * i) % 113 for i in range(24)]


@pytest.fixture(scope="module")
def target():
    return make_target()


@pytest.fixture(params=["dflash", "mtp"])
def learned(request, tmp_path, target):
    if request.param == "mtp":
        return load(tmp_path, target, mtp_config(), mtp_tensors(mtp_config()))
    return load(tmp_path, target, zlab_config())


def observe(drafter, state, tokens):
    taps = taps_of(drafter.learned, len(tokens), start=state.length)
    drafter.observe([state], [CommittedRows(tokens, state.length, taps)])


def make(learned, **options):
    return HybridDrafter(NgramDrafter(NgramOptions(longest=8)), learned, **options)


def test_copies_long_matches_and_predicts_the_rest(learned):
    drafter = make(learned)
    assert (drafter.name, drafter.taps) == (f"ngram+{learned.name}", learned.taps)
    states = [drafter.begin(DraftSampling()) for _ in range(3)]
    for state, tokens in zip(states, (REPEATING, FRESH, REPEATING), strict=True):
        observe(drafter, state, tokens)
    answers = drafts(drafter, states, [11, 5, 99], [3, 3, 3])
    assert answers[0].tokens == [12, 13, 14]
    for place, tip in ((1, 5), (2, 99)):
        assert same(answers[place], draft(learned, states[place].learned, tip, 3))
    drafter.audit(states)


def test_a_match_that_is_just_long_enough_is_copied(learned):
    drafter = make(learned)
    for matched in (6, 5):
        state = drafter.begin(DraftSampling())
        observe(drafter, state, [*range(50, 60), 99, *range(59 - matched, 58)])
        assert drafter.ngram.match_length(state.ngram, 58) == matched
        found = draft(drafter, state, 58, 3)
        assert found.copied == (matched == 6)
        assert (found.tokens[:2] == [59, 99]) == (matched == 6)


def test_only_predictions_are_held_to_what_was_asked_for(learned):
    drafter = make(learned)
    states = [drafter.begin(DraftSampling()) for _ in range(3)]
    for state, tokens in zip(states, (REPEATING, FRESH, FRESH), strict=True):
        observe(drafter, state, tokens)
    asked = [(11, 20, 2), (5, 20, 2), (5, 1, 2)]
    requests = [DraftRequest(s, *how) for s, how in zip(states, asked, strict=True)]
    answers = drafter.propose(requests)
    assert answers[0].copied
    assert answers[0].tokens == (REPEATING[1:8] + REPEATING[:1]) * 2 + REPEATING[1:5]
    assert answers[1].tokens == draft(learned, states[1].learned, 5).tokens[:2]
    assert answers[2].tokens == answers[1].tokens[:1]
    (alone,) = learned.propose([DraftRequest(states[1].learned, 5, 3, 1)])
    assert alone.tokens == answers[1].tokens[:1]
    (copied,) = drafter.ngram.propose([DraftRequest(states[0].ngram, 11, 20, 2)])
    assert copied.tokens == answers[0].tokens


def test_without_a_budget_only_copies_are_found(learned):
    """Of any length of match, beside others' full drafts; the learned drafter is not touched."""
    drafter = make(learned)
    states = [drafter.begin(DraftSampling()) for _ in range(3)]
    for state, tokens in zip(states, (REPEATING, FRESH, FRESH), strict=True):
        observe(drafter, state, tokens)
    bad_tip = V + 5  # the learned drafter would call it a fault
    asked = [(99, 7, 7), (FRESH[3], 7, 0), (bad_tip, 7, 0)]
    requests = [DraftRequest(s, *how) for s, how in zip(states, asked, strict=True)]
    whole, copied, nothing = drafter.propose(requests)
    assert same(whole, draft(learned, states[0].learned, 99, 7))
    assert (copied.copied, copied.tokens) == (True, [FRESH[4]]), "one token of match, one copied"
    assert nothing == Proposal(copied=nothing.copied)
    assert [state.waiting_rows for state in states] == [0, len(FRESH), len(FRESH)]
    for state in states[1:]:
        assert learned.propose([DraftRequest(state.learned, bad_tip, 7, 0)]) == [Proposal()]


def test_both_observe_everything(learned):
    """Either can take over at any round, after a rollback or in a fork."""
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, FRESH)
    observe(drafter, state, REPEATING)
    twin = state.fork()
    state.truncate(len(FRESH))
    assert state.length == state.ngram.length == len(FRESH)
    assert state.learned.length + state.waiting_rows == len(FRESH)
    assert draft(drafter, twin, 11, 2).tokens == [12, 13]
    assert isinstance(draft(drafter, state, 11, 2), Proposal)
    drafter.audit([state, twin])
    state.ngram.truncate(3)
    with pytest.raises(AssertionError, match="out of step"):
        drafter.audit([state, twin])
    state.release()
    twin.release()
    assert learned.pool.num_used == 0


def test_a_fork_draws_as_its_own_session_does(learned):
    drafter = make(learned)
    mine, siblings = DraftSampling(0.9, 3, STREAM_TOKEN), DraftSampling(1.2, 8, STREAM_TOKEN)
    state, alone = drafter.begin(mine), drafter.begin(siblings)
    for each in (state, alone):
        observe(drafter, each, FRESH)
    twin, heir = state.fork(siblings), state.fork()
    assert [s.learned.sampling for s in (state, twin, heir)] == [mine, siblings, mine]
    assert twin.fork().learned.sampling == siblings
    found = [draft(drafter, each, 5, 3).tokens for each in (state, twin, heir, alone)]
    assert found[0] == found[2] != found[1] == found[3]
    tail = drafter.export_tail(state, len(FRESH))
    assert drafter.restore(tail, siblings).learned.sampling == siblings


def test_forks_share_no_statistics(learned):
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4])
    twin = state.fork()
    (copied,) = drafter.propose([DraftRequest(twin, 1, 3, 0)])
    assert copied.tokens == [2]
    observe(drafter, twin, [1, 2])
    statistics = [each.ngram.statistics.accuracy(1) for each in (state, twin)]
    assert statistics == [0.25, pytest.approx((1 + 8 * 0.25) / (1 + 8))]


def test_waiting_rows_draft_as_if_observed_at_once(learned):
    """Rows in many pieces, kept waiting, against the same rows observed one piece at a time."""
    drafter = make(learned)
    patient, eager = drafter.begin(DraftSampling()), learned.begin(DraftSampling())
    for first in range(0, 24, 3):
        tokens = FRESH[first : first + 3]
        observe(drafter, patient, tokens)
        rows = CommittedRows(tokens, first, taps_of(learned, 3, start=first))
        learned.observe([eager], [rows])
    patient.truncate(20)
    eager.truncate(20)
    assert patient.learned.length == 0
    assert same(draft(drafter, patient, 5, 3), draft(learned, eager, 5, 3))
    eager.release()
    assert patient.learned.length == 20
    observe(drafter, patient, [1] * 70)
    assert patient.waiting_rows == 0, "too many rows are handed over at once"
    for count, waiting in ((60, 60), (4, 64), (1, 0), (64, 64), (2, 0), (65, 0)):
        observe(drafter, patient, [1] * count)
        assert patient.waiting_rows == waiting
    drafter.audit([patient])


def test_waiting_rows_hold_no_more_than_their_own_memory(learned):
    """A session's taps are a view of a whole pass's."""
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    whole = taps_of(learned, 500)
    for first in range(0, 60, 4):
        drafter.observe([state], [CommittedRows([1] * 4, first, whole[first : first + 4])])
    held = sum(rows.taps.untyped_storage().nbytes() for rows in state.waiting)
    assert held == 60 * len(learned.taps) * H * 4
    whole.zero_()
    assert torch.equal(state.waiting[0].taps, taps_of(learned, 4))


def test_a_round_is_set_back_inside_rows_that_were_handed_over_together(learned):
    drafter = make(learned)
    state, eager = drafter.begin(DraftSampling()), learned.begin(DraftSampling())
    for _ in range(20):
        observe(drafter, state, FRESH[:3])
    assert state.waiting_rows == 60
    learned.observe([eager], [CommittedRows(FRESH[:3] * 20, 0, taps_of(learned, 60))])
    observe(drafter, state, FRESH[:20] * 2)
    assert (state.learned.length, state.waiting_rows) == (100, 0)
    state.roll_back(60)
    others = HybridState(drafter.ngram.begin(DraftSampling()), eager)
    drafter.recover([state, others])
    learned.audit([state.learned, eager])
    assert state.length == state.ngram.length == 60
    assert same(draft(drafter, state, 99, 3), draft(learned, eager, 99, 3))


def test_rows_wait_on_where_handing_them_over_failed(learned, monkeypatch):
    drafter = make(learned)
    state, whole = drafter.begin(DraftSampling()), drafter.begin(DraftSampling())
    for each in (state, whole):
        observe(drafter, each, FRESH[:10])
        observe(drafter, each, FRESH[10:])

    def fail(*_):
        raise RuntimeError("kernel")

    with monkeypatch.context() as patched:
        patched.setattr(learned, "observe", fail)
        with pytest.raises(RuntimeError, match="kernel"):
            draft(drafter, state, 5, 3)
    assert (state.waiting_rows, state.learned.length, state.length) == (24, 0, 24)
    assert same(draft(drafter, state, 5, 3), draft(drafter, whole, 5, 3))


def test_proposes_as_many_as_either_can(learned):
    assert make(learned).max_draft == 32 > learned.max_draft
    short = HybridDrafter(NgramDrafter(NgramOptions(max_draft=1)), learned)
    assert short.max_draft == learned.max_draft > 1


def test_tails_carry_both(learned):
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, FRESH + REPEATING)
    tail = drafter.export_tail(state, 40)
    assert tail.nbytes == tail.ngram.nbytes + tail.learned.nbytes
    restored = drafter.restore(tail, DraftSampling())
    state.truncate(40)
    for tip in (11, 5):
        assert same(draft(drafter, restored, tip, 3), draft(drafter, state, tip, 3))
    assert drafter.restore(tail.ngram, DraftSampling()) is None
    assert drafter.export_tail(state, 41) is None
    state.ngram.truncate(39)
    assert drafter.export_tail(state, 40) is None, "half of it is missing"
    state.ngram.index.append(REPEATING[15])
    drafter.audit([state, restored])


def test_refused_half_returns_the_other(tmp_path, target):
    learned = load(tmp_path, target, zlab_config(), pages=2)
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, FRESH + REPEATING)
    tail = drafter.export_tail(state, 48)
    assert drafter.restore(tail, DraftSampling()) is None
    assert learned.pool.num_free == 0
    state.release()
    assert learned.pool.num_used == 0


def test_a_refused_text_returns_the_learned_half(learned):
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, FRESH + REPEATING)
    tail = drafter.export_tail(state, 48)
    state.release()
    assert drafter.restore(replace(tail, ngram=tail.learned), DraftSampling()) is None
    assert learned.pool.num_used == 0


def test_faults_of_the_learned_drafter_pass_through(learned):
    drafter = make(learned)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, REPEATING)
    assert isinstance(drafts(drafter, [state], [10_000], [3])[0], DrafterFault)


def test_predicts_up_to_the_learned_drafters_last_position(tmp_path, target):
    """At 29 of 30 it is asked, at 30 a short match is copied."""
    drafter = make(load(tmp_path, target, {**zlab_config(), "max_position_embeddings": 30}))
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [*FRESH, 114, 115, 116, 117, 118])
    last = draft(drafter, state, 114, 3)
    assert (state.length, last.copied, len(last.tokens)) == (29, False, 3)
    observe(drafter, state, [119])
    beyond = draft(drafter, state, 114, 3)
    assert (state.length, beyond.copied, beyond.tokens) == (30, True, [115])


def test_copies_beyond_the_learned_drafters_limit(tmp_path, target):
    config = {**zlab_config(), "max_position_embeddings": 30}
    drafter = make(load(tmp_path, target, config), long_match=9)
    assert drafter.max_position is None
    state = drafter.begin(DraftSampling())
    observe(drafter, state, REPEATING + REPEATING)
    assert draft(drafter, state, 11, 3).tokens == [12, 13, 14]
