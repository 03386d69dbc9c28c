"""The n-gram drafter against a brute-force search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.drafters.base import (
    CommittedRows,
    DrafterFault,
    DraftRequest,
    DraftSampling,
    Proposal,
)
from outrider.drafters.ngram import NgramDrafter, NgramOptions
from outrider.drafters.ngram.match_statistics import MatchStatistics

TEXT = st.lists(st.integers(0, 3), max_size=60)


def observe(drafter, state, tokens, start=None):
    start = state.length if start is None else start
    drafter.observe([state], [CommittedRows(tokens, start, None)])


def propose(drafter, state, tip, length):
    proposal = answer(drafter, state, tip, length)
    assert isinstance(proposal, Proposal)
    return proposal.tokens


def answer(drafter, state, tip, length):
    (found,) = drafter.propose([DraftRequest(state, tip, length, 0)])
    return found


def brute_force(text, tip, length, options):
    """Longest match up to ``longest``, the most recent one, copied with its own period."""
    whole = [*text, tip]
    for n in range(min(options.longest, len(whole)), options.shortest - 1, -1):
        for end in range(len(text), max(n - 1, len(text) - options.window), -1):
            if whole[end - n : end] == whole[-n:]:
                earlier = [e for e in range(n, end) if whole[e - n : e] == whole[-n:]]
                effective = n - int(bool(earlier) and whole[max(earlier)] != whole[end])
                source = list(whole)
                while len(source) < len(whole) + min(length, 2**effective - 1):
                    source.append(source[end + len(source) - len(whole)])
                return source[len(whole) :]
    return []


OPTIONS = st.builds(
    lambda a, b, w: NgramOptions(min(a, b), max(a, b), w),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 40),
)


@given(TEXT, st.integers(0, 3), st.integers(1, 20), OPTIONS)
def test_equals_brute_force(text, tip, length, options):
    drafter = NgramDrafter(options)
    state = drafter.begin(DraftSampling())
    observe(drafter, state, text)
    assert propose(drafter, state, tip, length) == brute_force(text, tip, length, options)


@settings(max_examples=150)
@given(st.data(), OPTIONS)
def test_any_history_equals_a_fresh_state(data, options):
    """Appending, truncating and forking leave exactly the state of a fresh observation."""
    drafter = NgramDrafter(options)
    state, text = drafter.begin(DraftSampling()), []
    for _ in range(data.draw(st.integers(1, 8))):
        match data.draw(st.sampled_from(["append", "truncate", "fork"])):
            case "append":
                piece = data.draw(TEXT)
                observe(drafter, state, piece)
                text += piece
            case "truncate":
                text = text[: data.draw(st.integers(0, len(text)))]
                state.truncate(len(text))
            case "fork":
                twin = state.fork()
                observe(drafter, state, [1, 2, 3])
                state = twin
    assert state.length == len(text)
    fresh = drafter.begin(DraftSampling())
    observe(drafter, fresh, text)
    assert state.index._ends == fresh.index._ends
    assert state.index._recent == fresh.index._recent
    for tip in range(4):
        assert propose(drafter, state, tip, 6) == propose(drafter, fresh, tip, 6)


def test_prefers_the_longest_then_the_most_recent_match():
    drafter = NgramDrafter(NgramOptions(shortest=1, longest=3))
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [5, 1, 2, 3, 70, 9, 2, 3, 80, 2, 3, 90, 5, 1, 2])
    assert propose(drafter, state, 3, 2) == [70, 9]
    assert propose(drafter, state, 2, 1) == [], "what follows 2 is ambiguous"
    assert drafter.match_length(state, 3) == 3


def test_short_matches_propose_little():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
    assert propose(drafter, state, 1, 7) == [2]
    observe(drafter, state, [1])
    assert propose(drafter, state, 2, 7) == [3, 4, 5]
    observe(drafter, state, [2])
    assert propose(drafter, state, 3, 7) == [4, 5, 6, 7, 8, 9, 9]


def test_a_match_that_went_on_in_two_ways_counts_for_less():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 9, 1, 2, 4, 9, 5, 5, 1])
    assert propose(drafter, state, 2, 7) == [4]
    observe(drafter, state, [8])
    assert propose(drafter, state, 9, 7) == [], "one token, followed by 1 and by 5"
    assert propose(drafter, state, 8, 7) == [8]


def test_confidence_follows_the_text():
    """Copies that come true raise it, copies that do not lower it."""

    def confidence(text: list[int]) -> float:
        drafter = NgramDrafter()
        state = drafter.begin(DraftSampling())
        for place, token in enumerate(text[:-1]):
            observe(drafter, state, [token])
            proposal = answer(drafter, state, text[place + 1], 4)
            assert len(proposal.confidences) == len(proposal.tokens)
        return state.statistics.accuracy(1)

    periodic = [1, 2, 3, 4] * 30
    broken = [1, *(token for n in range(2, 60) for token in (1, n))]
    fresh = NgramDrafter().begin(DraftSampling()).statistics.accuracy(1)
    assert confidence(periodic) > fresh > confidence(broken)


def test_confidences_of_a_copy_are_those_of_its_growing_match():
    """A match of three tokens, then of four, and so on; beyond eight all count alike."""
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [*range(1, 12), 1, 2])
    found = answer(drafter, state, 3, 9)
    assert found.tokens == [4, 5, 6, 7, 8, 9, 10]
    assert found.confidences == [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.85]
    observe(drafter, state, [3, 4])
    assert answer(drafter, state, 9, 1).confidences == [0.25], "one token of match"
    observe(drafter, state, [9])
    once = {3: (1 + 8 * 0.5) / 9, 4: (0 + 8 * 0.6) / 9}
    for matched in range(1, 9):
        prior = (0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85)[matched - 1]
        assert state.statistics.accuracy(matched) == pytest.approx(once.get(matched, prior))


def test_an_ambiguous_match_has_the_confidence_of_a_shorter_one():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 9, 1, 2, 4, 9, 5, 5, 1])
    found = answer(drafter, state, 2, 7)
    assert (found.tokens, found.confidences) == ([4], [0.25]), "two tokens, counted as one"


def test_statistics_follow_a_text_that_changes():
    """Sixty tokens are remembered: sixty new ones outweigh any number of old ones."""
    statistics = MatchStatistics(8)
    for _ in range(1000):
        statistics.record(1, False)
    assert statistics.accuracy(1) == pytest.approx(8 * 0.25 / 68, rel=1e-3)
    assert statistics.accuracy(2) == 0.3
    for _ in range(60):
        statistics.record(1, True)
    # What was remembered has faded 60 times by 60 in 61.
    new = 60 * (1 - (60 / 61) ** 60)
    assert statistics.accuracy(1) == pytest.approx((new + 2) / 68, rel=0.02)
    assert statistics.accuracy(1) > 0.5


def test_forks_share_no_statistics():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4])
    twin = state.fork()
    for each, token in ((state, 2), (twin, 7)):
        assert propose(drafter, each, 1, 1) == [2]
        observe(drafter, each, [1, token])
    assert state.statistics.accuracy(1) == pytest.approx((1 + 8 * 0.25) / 9)
    assert twin.statistics.accuracy(1) == pytest.approx((0 + 8 * 0.25) / 9)
    assert propose(drafter, state.fork(), 1, 1) == propose(drafter, state, 1, 1) == [2]
    heir = state.fork()
    assert heir.statistics.accuracy(1) == state.statistics.accuracy(1), "it starts from them"


def test_a_cut_copy_is_judged_all_the_same():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4, 5, 1, 2])
    before = state.statistics.accuracy(4)
    assert propose(drafter, state, 3, 3) == [4, 5, 1]
    observe(drafter, state, [3])
    observe(drafter, state, [4])
    observe(drafter, state, [9])
    assert state.statistics.accuracy(3) > 0.5
    assert state.statistics.accuracy(4) < before


def test_a_copy_is_judged_to_its_end_whatever_is_proposed_meanwhile():
    """Only its first token was kept; the text goes on as the rest of it said."""
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4, 5, 6, 1])
    assert propose(drafter, state, 2, 3) == [3, 4, 5]
    for token, following in ((2, 3), (3, 4), (4, 5)):
        observe(drafter, state, [token])
        propose(drafter, state, following, 1)
    observe(drafter, state, [5])
    priors = {2: 0.3, 3: 0.5, 4: 0.6}
    for matched, prior in priors.items():
        assert state.statistics.accuracy(matched) == pytest.approx((1 + 8 * prior) / 9)
    assert state.statistics.accuracy(5) == 0.7


def test_a_copy_is_not_judged_by_a_text_that_was_taken_back():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4, 1])
    assert propose(drafter, state, 2, 2) == [3, 4]
    state.truncate(4)
    observe(drafter, state, [7, 7, 7])
    assert [state.statistics.accuracy(matched) for matched in (1, 2, 3)] == [0.25, 0.3, 0.5]


def test_continues_a_loop_with_its_period():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 1, 2, 3, 1, 2])
    assert propose(drafter, state, 3, 7) == [1, 2, 3, 1, 2, 3, 1]


def test_a_window_counts_tokens_back_to_where_a_match_ends():
    drafter = NgramDrafter(NgramOptions(window=3))
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [5, 6, 1, 2])
    assert propose(drafter, state, 6, 1) == [1], "it ended two tokens back"
    assert propose(drafter, state, 5, 1) == [], "it ended three tokens back"


def test_no_match_no_draft():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    assert propose(drafter, state, 7, 4) == []
    observe(drafter, state, [1, 2, 3])
    assert propose(drafter, state, 9, 4) == []


def test_gap_is_reported_once_and_starts_anew():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 4])
    observe(drafter, state, [5, 6, 5], start=10)
    fault = answer(drafter, state, 6, 4)
    assert isinstance(fault, DrafterFault)
    assert "10" in str(fault)
    assert state.length == 13
    assert propose(drafter, state, 6, 2) == [5, 6]
    state.truncate(4)
    assert state.length == 4


def test_tail_restores_the_published_position():
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2, 3, 1, 2, 3, 4])
    tail = drafter.export_tail(state, 5)
    assert tail is not None
    assert tail.nbytes == 40
    restored = drafter.restore(tail, DraftSampling())
    state.truncate(5)
    assert restored.length == 5
    assert propose(drafter, restored, 3, 4) == propose(drafter, state, 3, 4) == [1, 2, 3, 1]
    assert drafter.export_tail(state, 6) is None
    assert drafter.export_tail(state, 0) is None


def test_cost_of_a_lookup_does_not_grow_with_the_text():
    """A lookup probes one table per length: no scan, however often the suffix occurs."""
    drafter = NgramDrafter()
    state = drafter.begin(DraftSampling())
    observe(drafter, state, [1, 2] * 20_000)
    probes = []

    class Counting(dict):
        def get(self, *args):
            probes.append(args)
            return super().get(*args)

    state.index._ends = [Counting(ends) for ends in state.index._ends]
    assert propose(drafter, state, 1, 4) == [2, 1, 2, 1]
    assert len(probes) <= len(state.index.lengths)


def test_options_are_checked():
    with pytest.raises(ValueError, match="shortest 3"):
        NgramOptions(shortest=3, longest=2)
