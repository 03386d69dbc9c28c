"""How streams end: every rule, at every place in a round, judged before anything is committed."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from outrider.config.engine import EngineConfig
from outrider.drafters.base import Proposal
from outrider.engine import Request
from outrider.session import drafting
from outrider.session.stream import TokenStream
from outrider.text.detokenizer import Detokenizer
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, adversaries, oracle
from support.run import alone, make_engine, serve, views
from support.tiny import EOS, TINY, tiny_target

PROMPT = [5, 9, 11, 5, 9, 11, 5]
FREE = SamplingParams(temperature=1.0, seed=4, max_tokens=40, ignore_eos=True)
WIDE = EngineConfig(max_num_seqs=2, draft_length=8)


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target()


@pytest.fixture(scope="module")
def free(target: Any) -> list[int]:
    """The tokens of the request that nothing ends."""
    return alone(target, [(PROMPT, FREE)])[0].outputs[0].token_ids


def drafted(target: Any, free: list[int], params: SamplingParams) -> Any:
    """The request decoded with a drafter that is always right, hence in the fewest rounds."""
    drafter = Scripted("right", oracle([[*PROMPT, *free]]))
    return serve(target, drafter, [(PROMPT, params)], config=WIDE)[0]


@pytest.mark.parametrize("limit", range(1, 12))
def test_max_tokens_is_exact(target: Any, free: list[int], limit: int) -> None:
    output = drafted(target, free, replace(FREE, max_tokens=limit, logprobs=1))
    completion = output.outputs[0]
    assert completion.token_ids == free[:limit]
    assert completion.finish_reason == "length"
    assert len(completion.logprobs) == limit
    assert completion.text == target.tokenizer.decode(free[:limit], skip_special=True)


@pytest.mark.parametrize("place", range(12))
def test_a_stop_token_cuts_every_view(target: Any, free: list[int], place: int) -> None:
    token = free[place]
    end = free.index(token) + 1
    output = drafted(target, free, replace(FREE, stop_token_ids=[token], logprobs=0))
    completion = output.outputs[0]
    assert completion.token_ids == free[:end]
    assert completion.finish_reason == "stop"
    assert completion.stop_reason == token
    assert len(completion.logprobs) == end
    assert completion.text == target.tokenizer.decode(free[: end - 1], skip_special=True)


def test_a_stop_at_the_limit_is_a_stop(target: Any, free: list[int]) -> None:
    token = free[4]
    end = free.index(token) + 1
    params = replace(FREE, stop_token_ids=[token], max_tokens=end)
    assert drafted(target, free, params).outputs[0].finish_reason == "stop"


@pytest.mark.parametrize("place", range(0, 20, 2))
def test_stop_strings_anywhere(target: Any, free: list[int], place: int) -> None:
    text = target.tokenizer.decode(free, skip_special=True)
    stop = text[place : place + 3]
    params = replace(FREE, stop=[stop, "never in it"])
    plain = alone(target, [(PROMPT, params)])
    fast = drafted(target, free, params)
    assert views([fast]) == views(plain)
    completion = fast.outputs[0]
    assert completion.text == text[: text.index(stop)]
    assert completion.stop_reason == stop
    kept = drafted(target, free, replace(params, include_stop_str_in_output=True)).outputs[0]
    assert kept.text == text[: text.index(stop) + len(stop)]
    decoded = target.tokenizer.decode(completion.token_ids, skip_special=True)
    assert stop in decoded
    # An unfinished character is no text yet: what is broken shows with the token that breaks it.
    detokenizer = Detokenizer(target.tokenizer, skip_special=True, prompt=PROMPT)
    before = "".join(map(detokenizer.push, completion.token_ids[:-1]))
    assert stop not in before, "no token past the one that completed the stop string"


def test_min_tokens_holds_ends_back(target: Any) -> None:
    bias = {EOS: 30.0}
    params = SamplingParams(temperature=0, seed=1, max_tokens=30, logit_bias=bias)
    soon = alone(target, [(PROMPT, params)])[0].outputs[0]
    assert soon.token_ids == [EOS]
    late = alone(target, [(PROMPT, replace(params, min_tokens=6))])[0].outputs[0]
    assert EOS not in late.token_ids[:6]
    assert late.token_ids[6:] == [EOS]
    drafter = adversaries([[*PROMPT, *late.token_ids]], TINY.vocab_size)["half"]
    fast = serve(target, drafter, [(PROMPT, replace(params, min_tokens=6))], config=WIDE)[0]
    assert fast.outputs[0].token_ids == late.token_ids


@pytest.mark.parametrize("length", range(len(PROMPT) + 1, len(PROMPT) + 14))
def test_the_last_legal_position_is_served(target: Any, free: list[int], length: int) -> None:
    config = replace(WIDE, max_model_len=length)
    drafter = Scripted("right", oracle([[*PROMPT, *free]]))
    params = replace(FREE, max_tokens=None)
    completion = serve(target, drafter, [(PROMPT, params)], config=config)[0].outputs[0]
    assert completion.token_ids == free[: length - len(PROMPT)]
    assert completion.finish_reason == "length"


def test_a_prompt_at_the_limit_is_refused(target: Any) -> None:
    engine = make_engine(target, None, EngineConfig(max_model_len=7))
    with pytest.raises(RequestError, match="maximum context length is 7 tokens"):
        engine.add(Request(PROMPT))
    with pytest.raises(RequestError, match="at least one token"):
        engine.add(Request([]))
    with pytest.raises(RequestError, match="token 48 is outside the vocabulary of 48"):
        engine.add(Request([48]))
    with pytest.raises(RequestError, match="stop_token_ids: token 99"):
        engine.add(Request([1], SamplingParams(stop_token_ids=[99])))
    assert not engine.has_unfinished


def test_drafting_stops_at_the_drafters_own_limit(target: Any, free: list[int]) -> None:
    drafter = Scripted("right", oracle([[*PROMPT, *free]]))
    drafter.max_position = len(PROMPT) + 9
    far: list[int] = []
    honest = drafter.guess

    def spy(known: list[int], length: int) -> object:
        far.append(len(known) + length)
        return honest(known, length)

    drafter.guess = spy
    output = serve(target, drafter, [(PROMPT, FREE)], config=WIDE)[0]
    assert output.outputs[0].token_ids == free
    assert far
    assert max(far) <= drafter.max_position
    assert output.metrics.speculation.faults == 0


def test_streamed_text_is_whole_and_unbroken(target: Any, free: list[int]) -> None:
    engine = make_engine(target, Scripted("right", oracle([[*PROMPT, *free]])), WIDE)
    request_id = engine.add(Request(PROMPT, FREE))
    deltas = []
    while engine.has_unfinished:
        deltas += engine.step()
    output = engine.output(request_id).outputs[0]
    assert "".join(delta.text for delta in deltas) == output.text
    assert [token for delta in deltas for token in delta.token_ids] == output.token_ids
    assert deltas[-1].finish_reason == "length"
    assert output.text == target.tokenizer.decode(output.token_ids, skip_special=True)


def test_cancelling_returns_every_page(target: Any, free: list[int]) -> None:
    engine = make_engine(target, Scripted("right", oracle([[*PROMPT, *free]])), WIDE)
    ids = [engine.add(Request(PROMPT, replace(FREE, n=3))) for _ in range(4)]
    for turn in range(9):
        engine.step()
        engine.audit()
        if turn % 2:
            engine.abort(ids[turn // 2])
            engine.audit()
    assert not engine.has_unfinished
    assert engine._pool.num_used == 0
    engine.abort("unknown")


def test_demotion_at_any_round_is_invisible(target: Any, free: list[int]) -> None:
    drafter = Scripted("right", oracle([[*PROMPT, *free]]))
    for mask in range(1, 16):
        engine = make_engine(target, drafter, replace(WIDE, draft_length=3))
        request_id = engine.add(Request(PROMPT, FREE))
        session = engine._parents[request_id].sessions[0]
        turn = 0
        while engine.has_unfinished:
            session.demote() if mask >> (turn % 4) & 1 else session.promote()
            engine.step()
            engine.audit()
            turn += 1
        output = engine.output(request_id)
        assert output.outputs[0].token_ids == free
        assert (output.metrics.speculation.accepted > 0) == (mask != 15)


def test_a_failed_pass_leaves_nothing_staged(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(target, None, WIDE)
    request_id = engine.add(Request(PROMPT, replace(FREE, max_tokens=5)))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(type(target.model), "forward", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    engine.audit()
    while engine.has_unfinished:
        engine.step()
    expected = alone(target, [(PROMPT, replace(FREE, max_tokens=5))])[0].outputs[0]
    assert engine.take(request_id).outputs[0].token_ids == expected.token_ids


def test_faults_are_counted_and_logged_once(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(known: list[int], length: int) -> object:
        raise RuntimeError("planted")

    with caplog.at_level(logging.WARNING, logger="outrider"):
        output = serve(target, Scripted("broken", broken), [(PROMPT, FREE)], config=WIDE)[0]
    speculation = output.metrics.speculation
    assert speculation.faults == speculation.rounds - 2
    assert [r.message for r in caplog.records if "planted" in r.message].__len__() == 1


def test_a_drafter_that_never_helps_is_reported(
    target: Any, free: list[int], caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr(drafting, "USELESS_AFTER", 50)
    useless = adversaries([[*PROMPT, *free]], TINY.vocab_size)["wrong"]
    with caplog.at_level(logging.WARNING, logger="outrider"):
        serve(target, useless, [(PROMPT, FREE)], config=WIDE)
    assert sum("accepted 0 of" in record.message for record in caplog.records) == 1


def test_a_draft_is_cut_at_low_confidence(target: Any, free: list[int]) -> None:
    right = oracle([[*PROMPT, *free]])

    def guess(known: list[int], length: int) -> Proposal:
        tokens = right(known, length)
        return Proposal(tokens, None, [0.9, 0.8, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9][: len(tokens)])

    config = replace(WIDE, confidence_threshold=0.5)
    output = serve(target, Scripted("sure", guess), [(PROMPT, FREE)], config=config)[0]
    assert output.outputs[0].token_ids == free
    assert len(output.metrics.speculation.drafted_per_position) == 2


def test_gate_catches_a_late_stop(target: Any, free: list[int], monkeypatch: Any) -> None:
    """A stop judged only after the round would keep tokens past it."""
    token = free[5]
    params = replace(FREE, stop_token_ids=[token])
    honest = TokenStream.emit
    state = {"late": 0}

    def late(self: TokenStream, emitted: int) -> None:
        if emitted == token and state["late"] == 0:
            state["late"] = 1
            self.tokens.append(emitted)
            self.history.emit(emitted)
            return
        honest(self, emitted)

    expected = alone(target, [(PROMPT, params)])[0].outputs[0].token_ids
    monkeypatch.setattr(TokenStream, "emit", late)
    assert drafted(target, free, params).outputs[0].token_ids != expected
