"""States, faults and tails of drafters with a paged context."""

from __future__ import annotations

import pytest
import torch
from drafter_toys import (
    H,
    V,
    begin,
    block_tensors,
    draft,
    drafts,
    feed,
    fresh_draft,
    load,
    make_target,
    mtp_config,
    mtp_tensors,
    same,
    taps_of,
    tokens_of,
    zlab_config,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.drafters.base import (
    CommittedRows,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    Proposal,
)
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.context.tail import ContextTail
from outrider.drafters.mtp.drafter import MtpDrafter
from outrider.drafters.ngram import NgramDrafter, NgramState
from outrider.kernels.rows import PAGE_TOKENS

WINDOW = 40
SLIDING = {
    "top": {
        "layer_types": ["sliding_attention"] * 2,
        "sliding_window": WINDOW,
        "use_sliding_window": True,
    }
}
MIXED = {"top": {**SLIDING["top"], "layer_types": ["sliding_attention", "full_attention"]}}


@pytest.fixture(scope="module")
def target():
    return make_target()


def make(kind, path, target, pages=64):
    """A drafter of every kind with a context."""
    if kind == "mtp":
        config = mtp_config()
        return load(path, target, config, mtp_tensors(config), pages)
    if kind == "mtp, sliding":
        config = mtp_config(sliding_window=WINDOW, use_sliding_window=True)
        return load(path, target, config, mtp_tensors(config), pages)
    options = {"full": {}, "sliding": SLIDING, "mixed": MIXED}[kind]
    return load(path, target, zlab_config(**options), pages=pages)


KINDS = ["full", "sliding", "mixed", "mtp", "mtp, sliding"]


@pytest.fixture(params=KINDS)
def drafter(request, tmp_path, target):
    return make(request.param, tmp_path, target)


# -- states ----------------------------------------------------------------------------------------


def test_truncated_state_equals_a_fresh_one(drafter):
    state = begin(drafter, 75)
    state.truncate(61)
    assert state.length == 61
    assert same(draft(drafter, state), fresh_draft(drafter, 61))
    feed(drafter, state, 14)
    assert same(draft(drafter, state), fresh_draft(drafter, 75))


def test_forks_are_independent(drafter):
    state = begin(drafter, 45)
    twin = state.fork()
    feed(drafter, state, 20)
    rows = CommittedRows(tokens_of(9, 8, 45), 45, taps_of(drafter, 9, 8, 45))
    drafter.observe([twin], [rows])
    assert same(draft(drafter, state), fresh_draft(drafter, 65))
    alone = begin(drafter, 45)
    drafter.observe([alone], [rows])
    assert same(draft(drafter, twin), draft(drafter, alone))
    assert draft(drafter, twin).tokens != draft(drafter, state).tokens
    drafter.audit([state, twin, alone])
    for each in (state, twin, alone):
        each.release()
    assert drafter.pool.num_used == 0


def test_proposing_changes_nothing(drafter):
    state = begin(drafter, 33)
    first = draft(drafter, state)
    assert same(draft(drafter, state), first)
    assert state.length == 33
    drafter.audit([state])


def test_a_leak_is_caught(drafter):
    state = begin(drafter, 33)
    drafter.audit([state])
    with pytest.raises(AssertionError, match="page counts"):
        drafter.audit([])


def test_another_drafters_state_is_refused(drafter):
    foreign = NgramDrafter().begin(DraftSampling())
    assert isinstance(foreign, NgramState)
    with pytest.raises(TypeError, match="another drafter"):
        drafts(drafter, [foreign], [1], [1])


@pytest.mark.parametrize("kind", KINDS)
def test_any_history_equals_a_fresh_state(tmp_path, target, kind):
    """Property: observing in pieces, rolling back and forking lead to the state of one pass.

    MTP goes back to where the last rows began, or a page, and starts cold further back.
    """
    drafter = make(kind, tmp_path, target)

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def run(data):
        states, lowest = [drafter.begin(DraftSampling())], 0
        try:
            for _ in range(data.draw(st.integers(1, 6))):
                length = states[-1].length
                match data.draw(st.sampled_from(["feed", "feed", "truncate", "fork"])):
                    case "feed":
                        feed(drafter, states[-1], data.draw(st.integers(1, 40)))
                        if "mtp" in kind:
                            page_back = states[-1].length - PAGE_TOKENS + 1
                            lowest = max(lowest, min(length, page_back))
                    case "truncate":
                        states[-1].truncate(data.draw(st.integers(lowest, length)))
                    case "fork":
                        states.append(states[-1].fork())
            drafter.audit(states)
            length = states[-1].length
            if length:
                assert same(draft(drafter, states[-1]), fresh_draft(drafter, length))
        finally:
            for state in states:
                state.release()
        assert drafter.pool.num_used == 0

    run()


# -- cold starts and faults ------------------------------------------------------------------------


def test_rows_without_taps_start_cold(drafter):
    """Rows reused from a cache were never tapped: drafting goes on with those after them."""
    state = drafter.begin(DraftSampling())
    drafter.observe([state], [CommittedRows(tokens_of(50), 0, None)])
    assert state.length == 50
    feed(drafter, state, 10)
    assert state.length == 60
    assert isinstance(draft(drafter, state), Proposal)
    assert state.cache.floor in (50, 51)
    state.truncate(20)
    assert (state.length, drafter.pool.num_used) == (20, 0)
    feed(drafter, state, 3)
    assert isinstance(draft(drafter, state), Proposal)


def test_cold_start_reads_nothing_below_its_floor(drafter):
    """Poison every page, give it back, and start cold on top of it."""
    store = drafter.pool.store
    store.k.fill_(float("nan"))
    store.v.fill_(float("nan"))
    state = drafter.begin(DraftSampling())
    drafter.observe([state], [CommittedRows(tokens_of(70), 0, None)])
    feed(drafter, state, 9)
    cold = draft(drafter, state)
    store.k.zero_()
    store.v.zero_()
    clean = drafter.begin(DraftSampling())
    drafter.observe([clean], [CommittedRows(tokens_of(70), 0, None)])
    feed(drafter, clean, 9)
    assert isinstance(cold, Proposal)
    assert same(cold, draft(drafter, clean))


def rows_of(state, first, end):
    """Indices of a state's rows [first, end) in the store."""
    pages = state.cache.pages
    return [pages[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS for at in range(first, end)]


def test_no_row_below_a_floor_is_left_as_it_was(drafter):
    """Masked rows may be read and multiplied by zero: what lay there must not be a NaN."""
    store = drafter.pool.store
    store.k.fill_(float("nan"))
    store.v.fill_(float("nan"))
    cold = drafter.begin(DraftSampling())
    drafter.observe([cold], [CommittedRows(tokens_of(70), 0, None)])
    feed(drafter, cold, 100)
    tail = drafter.export_tail(cold, cold.length)
    restored = [] if tail is None else [drafter.restore(tail, DraftSampling())]
    for state in (cold, *restored):
        below, floor = rows_of(state, 0, state.cache.floor), state.cache.floor
        assert len(below) >= 70
        for part in (store.k, store.v):
            assert not part[:, below].any()
            assert part[:, rows_of(state, floor, state.length)].isfinite().all()


def test_faults_stay_within_their_session(drafter):
    """Non-finite taps, a gap, a wrong shape, a bad tip: neighbours draft as if alone."""
    expected = [fresh_draft(drafter, n, n, tip=n) for n in (30, 47)]
    good = [drafter.begin(DraftSampling()) for _ in range(2)]
    bad = [drafter.begin(DraftSampling()) for _ in range(5)]
    for state in bad:
        feed(drafter, state, 10)
    nan, inf = taps_of(drafter, 4, start=10), taps_of(drafter, 4, start=10)
    nan[2, 7] = float("nan")
    inf[0, 0] = float("inf")
    rows = [
        CommittedRows(tokens_of(30, 30), 0, taps_of(drafter, 30, 30)),
        CommittedRows(tokens_of(4, start=10), 10, nan),
        CommittedRows(tokens_of(4, start=10), 10, inf),
        CommittedRows(tokens_of(4, start=12), 12, taps_of(drafter, 4, start=12)),
        CommittedRows(tokens_of(4, start=10), 10, taps_of(drafter, 4)[:, 1:]),
        CommittedRows(tokens_of(4, start=10), 10, taps_of(drafter, 4, start=10)),
        CommittedRows(tokens_of(47, 47), 0, taps_of(drafter, 47, 47)),
    ]
    states = [good[0], *bad, good[1]]
    drafter.observe(states, rows)
    assert [state.length for state in states] == [30, 14, 14, 16, 14, 14, 47]
    answers = drafts(drafter, states, [30, 1, 1, 1, 1, V, 47], [5] * 7)
    assert same(answers[0], expected[0])
    assert same(answers[-1], expected[1])
    assert all(isinstance(answer, DrafterFault) for answer in answers[1:-1])
    reasons = [str(answer) for answer in answers[1:-1]]
    for reason, word in zip(
        reasons, ["not finite", "not finite", "continue", "shape", "outside"], strict=True
    ):
        assert word in reason
    drafter.audit(states)
    # Each fault is reported once; afterwards the session drafts from what it has seen since.
    for state in states:
        feed(drafter, state, 3)
    assert all(isinstance(a, Proposal) for a in drafts(drafter, states, [1] * 7, [5] * 7))


@pytest.mark.parametrize("rows", [[0], [1, 3]])
def test_states_that_are_not_finite_spoil_one_round(drafter, rows):
    """Also where the last is one of them, which a slot after it would be paired with."""
    state = begin(drafter, 10)
    taps = taps_of(drafter, 4, start=10)
    taps[rows, 5] = float("nan")
    drafter.observe([state], [CommittedRows(tokens_of(4, start=10), 10, taps)])
    assert "states at 10..13 are not finite" in str(draft(drafter, state))
    for _ in range(2):
        feed(drafter, state, 3)
        assert len(draft(drafter, state).tokens) == drafter.max_draft
    assert state.length == 20
    assert state.cache.floor == (15 if isinstance(drafter, MtpDrafter) else 14)


def test_poisoned_pages_stay_within_their_session(drafter):
    states = [begin(drafter, n, n) for n in (30, 40, 50)]
    expected = draft(drafter, states[0]), draft(drafter, states[2])
    page = states[1].cache.pages[1]
    rows = slice(page * PAGE_TOKENS, page * PAGE_TOKENS + 8)
    drafter.pool.store.k[:, rows] = float("nan")
    answers = drafts(drafter, states, [5] * 3, [drafter.max_draft] * 3)
    assert same(answers[0], expected[0])
    assert same(answers[2], expected[1])
    assert isinstance(answers[1], DrafterFault)
    assert "not finite" in str(answers[1])


def test_out_of_pages_is_a_fault_of_that_session(tmp_path, target):
    for kind in ("full", "mtp"):
        drafter = make(kind, tmp_path / kind, target, pages=4)
        small, large = drafter.begin(DraftSampling()), drafter.begin(DraftSampling())
        feed(drafter, small, 20)
        feed(drafter, large, 200)
        answers = drafts(drafter, [small, large], [5, 5], [3, 3])
        assert isinstance(answers[0], Proposal)
        assert "pages" in str(answers[1])
        assert large.length == 200
        drafter.audit([small, large])


def test_positions_beyond_the_limit(tmp_path, target):
    for kind in ("full", "mtp"):
        config = mtp_config() if kind == "mtp" else zlab_config()
        config["max_position_embeddings"] = 50
        tensors = mtp_tensors(config) if kind == "mtp" else block_tensors(config)
        drafter = load(tmp_path / kind, target, config, tensors)
        assert drafter.max_position == 50
        state = begin(drafter, 49)
        assert isinstance(draft(drafter, state), Proposal)
        feed(drafter, state, 1)
        assert "beyond" in str(draft(drafter, state))
        feed(drafter, state, 30)
        assert state.length == 80
        assert "beyond" in str(draft(drafter, state))


def test_observing_exactly_at_the_limit(tmp_path, target):
    """Rows up to the last position are kept; the first beyond it drops them all."""
    for kind in ("full", "mtp"):
        config = mtp_config() if kind == "mtp" else zlab_config()
        config["max_position_embeddings"] = 50
        tensors = mtp_tensors(config) if kind == "mtp" else block_tensors(config)
        drafter = load(tmp_path / kind, target, config, tensors)
        floor = 1 if kind == "mtp" else 0
        for pieces in ([50], [49, 1], [20, 30]):
            state = drafter.begin(DraftSampling())
            for count in pieces:
                feed(drafter, state, count)
            assert (state.length, state.cache.floor, len(state.cache.pages)) == (50, floor, 2)
            twin = state.fork()
            twin.truncate(49)
            assert same(draft(drafter, twin), fresh_draft(drafter, 49))
            feed(drafter, state, 1)
            assert (state.length, state.cache.floor, state.cache.pages) == (51, 51, [])
            twin.release()
        crossing = drafter.begin(DraftSampling())
        feed(drafter, crossing, 51)
        assert (crossing.length, crossing.cache.pages, drafter.pool.num_used) == (51, [], 0)


def test_a_budget_bounds_what_is_computed(drafter):
    state = begin(drafter, 33)
    whole = draft(drafter, state)
    for most, budget, count in ((3, 2, 2), (2, 3, 2), (1, 1, 1), (99, 99, drafter.max_draft)):
        (found,) = drafter.propose([DraftRequest(state, 5, most, budget)])
        assert found.tokens == whole.tokens[:count]
    feed(drafter, state, 2)
    drafter.observe([state], [CommittedRows([1], 40, taps_of(drafter, 1))])
    assert drafter.propose([DraftRequest(state, 5, 3, 0)]) == [Proposal()]
    (fault,) = drafter.propose([DraftRequest(state, 5, 3, 1)])
    assert "rows at 40 do not continue the 35 observed" in str(fault), "kept until it is asked"


def test_a_failed_write_leaves_the_state_as_it_was(drafter, monkeypatch):
    state = begin(drafter, 20)
    expected = draft(drafter, state)

    def fail(*_):
        raise RuntimeError("kernel")

    with monkeypatch.context() as patched:
        patched.setattr(drafter, "_write", fail)
        with pytest.raises(RuntimeError, match="kernel"):
            feed(drafter, state, 5)
    assert state.length == 20
    assert same(draft(drafter, state), expected)
    feed(drafter, state, 5)
    assert same(draft(drafter, state), fresh_draft(drafter, 25))


# -- tails -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", [33, 64, 90, 137])
def test_restored_drafts_what_the_uninterrupted_one_does(drafter, upto):
    """Also when the session moved past the published position before its tail was taken."""
    uninterrupted = begin(drafter, upto)
    state = begin(drafter, upto)
    feed(drafter, state, 21)
    tail = drafter.export_tail(state, upto)
    assert tail is not None
    state.release()
    drafter.pool.store.k.fill_(float("nan"))
    drafter.pool.store.v.fill_(float("nan"))
    restored = drafter.restore(tail, DraftSampling())
    assert restored.length == tail.upto == upto
    fresh = make_fresh(drafter, uninterrupted, upto)
    for _ in range(3):
        assert same(draft(drafter, restored), draft(drafter, fresh))
        if not isinstance(drafter, MtpDrafter):
            assert torch.equal(states_of(drafter, restored), states_of(drafter, fresh))
        for each in (restored, fresh):
            feed(drafter, each, 7)
    drafter.audit([restored, fresh, uninterrupted])
    assert (drafter.tails.exported, drafter.tails.restored) == (1, 1)


def states_of(drafter, state):
    """Final states of a session's next block, [max_draft, H]."""
    return drafter._hidden([CheckedRequest(0, state, 5, drafter.max_draft)])[0]


def test_one_row_less_would_not_suffice(tmp_path, target):
    """The rule is exact: what it refuses would change the next block."""
    upto = 2 * PAGE_TOKENS - 1 + WINDOW - 1
    drafter = make("sliding", tmp_path, target)
    state = begin(drafter, upto)
    exact = drafter.restore(drafter.export_tail(state, upto), DraftSampling())
    assert torch.equal(states_of(drafter, exact), states_of(drafter, state))
    assert drafter.lowest_needed(upto) == 2 * PAGE_TOKENS - 1
    drafter.reach -= 1
    short = drafter.restore(drafter.export_tail(state, upto), DraftSampling())
    assert not torch.equal(states_of(drafter, short), states_of(drafter, state))


def make_fresh(drafter, poisoned, upto):
    """The poisoning spoiled the uninterrupted session's rows too: write them again."""
    poisoned.release()
    poisoned.skip_to(0)
    return begin(drafter, upto)


def test_tail_holds_only_what_can_be_observed(tmp_path, target):
    sliding = make("sliding", tmp_path / "a", target)
    full = make("full", tmp_path / "b", target)
    tails = [d.export_tail(begin(d, 300), 300) for d in (sliding, full)]
    assert tails[0].rows.base == (300 - WINDOW + 1) // PAGE_TOKENS * PAGE_TOKENS
    assert tails[1].rows.base == 0
    page = sliding.pool.store.page_nbytes
    assert (tails[0].nbytes, tails[1].nbytes) == (2 * page, 10 * page)


def test_tails_that_do_not_suffice_are_refused(tmp_path, target):
    sliding = make("sliding", tmp_path / "a", target)
    full = make("full", tmp_path / "b", target)
    cold = sliding.begin(DraftSampling())
    sliding.observe([cold], [CommittedRows(tokens_of(100), 0, None)])
    feed(sliding, cold, WINDOW - 2)
    assert sliding.export_tail(cold, cold.length) is None
    feed(sliding, cold, 1)
    assert sliding.export_tail(cold, cold.length) is not None
    assert sliding.export_tail(cold, cold.length + 1) is None
    assert sliding.export_tail(sliding.begin(DraftSampling()), 0) is None
    assert sliding.tails.refused == {
        "export: rows missing": 1,
        "export: position not observed": 2,
    }

    whole = sliding.export_tail(begin(sliding, 200), 200)
    short = ContextTail(
        200, type(whole.rows)(whole.rows.base + PAGE_TOKENS, 200, whole.rows.pages[1:]), whole.shape
    )
    assert sliding.restore(short, DraftSampling()) is None
    late = ContextTail(201, whole.rows, whole.shape)
    assert sliding.restore(late, DraftSampling()) is None
    assert sliding.tails.refused["restore: rows missing"] == 2
    assert full.restore(whole, DraftSampling()) is None
    assert full.tails.refused == {"restore: tail of another drafter": 1}

    crowded = make("sliding", tmp_path / "c", target, pages=3)
    assert crowded.restore(whole, DraftSampling()) is None
    assert crowded.tails.refused == {"restore: out of pages": 1}
    assert crowded.pool.num_used == 0


def test_full_attention_needs_every_row(tmp_path, target):
    for kind in ("mixed", "full"):
        drafter = make(kind, tmp_path / kind, target)
        cold = drafter.begin(DraftSampling())
        drafter.observe([cold], [CommittedRows(tokens_of(5), 0, None)])
        feed(drafter, cold, 200)
        assert drafter.export_tail(cold, 205) is None
        assert drafter.tails.refused == {"export: rows missing": 1}


def test_taps_have_the_declared_width(drafter):
    assert taps_of(drafter, 1).shape == (1, len(drafter.taps) * H)
    assert torch.equal(taps_of(drafter, 3)[1:], taps_of(drafter, 2, start=1))
