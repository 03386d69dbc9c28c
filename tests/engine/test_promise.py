"""The promise: drafting, batching, chunking, arrival and preemption never change an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from outrider.config.engine import EngineConfig
from outrider.drafters.ngram import NgramDrafter
from outrider.kernels.handles import Linear
from outrider.kernels.reference import ReferenceKernels, ReferenceLinear, _dense
from outrider.session import round as session_round
from outrider.types.sampling import SamplingParams
from outrider.verify.samplers import LogitsSampler
from support.adversaries import Scripted, adversaries, oracle
from support.run import alone, make_engine, serve, truth, views
from support.tiny import TINY, VARIANTS, tiny_target

PROMPTS = [
    [5, 9, 11, 5, 9, 11, 5],
    [3],
    list(range(1, 40)),
    [7, 7, 7, 2, 30, 31, 32, 7, 7, 7],
]
GREEDY = SamplingParams(temperature=0, seed=1, max_tokens=24, ignore_eos=True, logprobs=2)
SAMPLED = [
    SamplingParams(temperature=0.8, seed=7, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=8, top_k=5, max_tokens=21, logprobs=0),
    SamplingParams(temperature=1.3, seed=9, top_p=0.8, min_p=0.02, max_tokens=20),
    SamplingParams(
        temperature=0.9,
        seed=10,
        max_tokens=24,
        presence_penalty=0.7,
        frequency_penalty=0.4,
        repetition_penalty=1.2,
        min_tokens=9,
        logit_bias={4: 2.0, 11: -3.0},
    ),
    SamplingParams(temperature=0, seed=2, max_tokens=24, repetition_penalty=1.3, min_tokens=5),
]
REQUESTS = [(prompt, GREEDY) for prompt in PROMPTS] + [
    (PROMPTS[index % len(PROMPTS)], params) for index, params in enumerate(SAMPLED)
]


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target()


@pytest.fixture(scope="module")
def plain(target: Any) -> Any:
    return alone(target, REQUESTS)


def test_answers_hold_characters_that_several_tokens_spell(target: Any, plain: Any) -> None:
    """Or the promise would say little of text: whole ones, and ones that a neighbour breaks."""
    letters = "".join(completion.text for output in plain for completion in output.outputs)
    assert sum(letter > "~" and letter != "\ufffd" for letter in letters) >= 2
    assert letters.count("\ufffd") > 20
    tokenizer = target.tokenizer
    assert not any("~" < tokenizer.token_text(token) < "\ufffd" for token in range(48))


KINDS = list(adversaries([], 48))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 15])
def test_adversaries_never_change_an_answer(
    target: Any, plain: Any, kind: str, length: int
) -> None:
    drafter = adversaries(truth(plain), TINY.vocab_size)[kind]
    config = EngineConfig(
        max_num_seqs=1 + length % 4, draft_length=length, max_num_batched_tokens=7
    )
    outputs = serve(target, drafter, REQUESTS, gap=length % 3, config=config)
    assert views(outputs) == views(plain)
    for output in outputs:
        speculation = output.metrics.speculation
        tokens = sum(len(c.token_ids) for c in output.outputs)
        assert tokens == speculation.rounds + speculation.accepted
    if kind == "right":
        accepted = sum(o.metrics.speculation.accepted for o in outputs)
        assert accepted > 40, "the oracle must be believed, or this test compares plain with plain"


@pytest.mark.parametrize("length", range(1, 16))
def test_ngram_at_every_draft_length(target: Any, plain: Any, length: int) -> None:
    config = EngineConfig(max_num_seqs=3, draft_length=length, max_num_batched_tokens=13)
    outputs = serve(target, NgramDrafter(), REQUESTS, gap=2, config=config)
    assert views(outputs) == views(plain)
    assert sum(o.metrics.speculation.drafted for o in outputs) > 0


BUDGETS = [
    (seats, rows) for seats in (1, 3, 8) for rows in (1, 2, 3, 8, 16, 33, 512) if rows >= seats
]


@pytest.mark.parametrize(("seats", "rows"), BUDGETS)
def test_tokens_are_equal_whatever_rows_a_pass_may_have(
    target: Any, plain: Any, seats: int, rows: int
) -> None:
    config = EngineConfig(max_num_seqs=seats, max_num_batched_tokens=rows)
    drafter = Scripted("right", oracle(truth(plain)))
    assert views(serve(target, drafter, REQUESTS, gap=1, config=config)) == views(plain)
    assert views(serve(target, None, REQUESTS, config=config)) == views(plain)


@pytest.mark.parametrize("architecture", list(VARIANTS))
def test_every_architecture(architecture: str) -> None:
    target = tiny_target(VARIANTS[architecture])
    plain = alone(target, REQUESTS)
    drafter = Scripted("half", adversaries(truth(plain), TINY.vocab_size)["half"].guess, (-1, 0, 1))
    config = EngineConfig(max_num_seqs=4, draft_length=6, max_num_batched_tokens=11)
    assert views(serve(target, drafter, REQUESTS, gap=1, config=config)) == views(plain)
    assert drafter.tap_shapes
    assert {shape[1] for shape in drafter.tap_shapes} == {3 * TINY.hidden_size}


def test_preemption_is_invisible(target: Any, plain: Any) -> None:
    page = target.model.allocate(1).page_nbytes
    config = EngineConfig(
        max_model_len=64,
        max_num_seqs=8,
        draft_length=5,
        kv_cache_memory_bytes=page * 5,
        max_num_batched_tokens=9,
    )
    drafter = Scripted("right", oracle(truth(plain)))
    engine_outputs = serve(target, drafter, REQUESTS, config=config)
    assert views(engine_outputs) == views(alone(target, REQUESTS, replace(config, max_num_seqs=1)))


def test_pages_run_out_for_real(target: Any) -> None:
    from outrider.engine import Request

    page = target.model.allocate(1).page_nbytes
    config = EngineConfig(max_model_len=96, max_num_seqs=6, kv_cache_memory_bytes=page * 5)
    engine = make_engine(target, None, config)
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    for prompt in PROMPTS:
        engine.add(Request(prompt, params))
    while engine.has_unfinished:
        engine.step()
        engine.audit()
    assert engine.preemptions > 0


def test_n_completions_share_a_prompt_and_stay_distinct(target: Any) -> None:
    params = SamplingParams(n=4, temperature=1.0, seed=21, max_tokens=12, ignore_eos=True)
    together = serve(target, NgramDrafter(), [(PROMPTS[2], params)])[0]
    assert len({tuple(c.token_ids) for c in together.outputs}) == 4
    for index, completion in enumerate(together.outputs):
        single = replace(params, n=1, seed=21 + index)
        solo = alone(target, [(PROMPTS[2], single)])[0].outputs[0]
        assert completion.token_ids == solo.token_ids
        assert completion.seed == 21 + index
        assert completion.index == index


def test_seeds_differ_within_one_batch(target: Any) -> None:
    requests = [
        (PROMPTS[0], SamplingParams(temperature=1.0, seed=seed, max_tokens=16, ignore_eos=True))
        for seed in range(6)
    ]
    outputs = serve(target, NgramDrafter(), requests)
    assert views(outputs) == views(alone(target, requests))
    assert len({tuple(o.outputs[0].token_ids) for o in outputs}) == 6


def test_omitted_seeds_are_fresh_and_reported(target: Any) -> None:
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    first, second = (alone(target, [(PROMPTS[0], params)])[0].outputs[0] for _ in range(2))
    assert first.seed != second.seed
    replay = alone(target, [(PROMPTS[0], replace(params, seed=first.seed))])[0].outputs[0]
    assert replay.token_ids == first.token_ids


# -- broken twins: each gate above must be able to fail --------------------------------------------


class BatchSizedKernels(ReferenceKernels):
    """Splits the sum over K when a product has more than two rows: not row-invariant."""

    def linear(self, x: torch.Tensor, weight: Linear) -> torch.Tensor:
        dense = _dense(weight)
        if x.shape[0] <= 2:
            return super().linear(x, weight)
        half = dense.in_features // 2
        parts = [
            super(BatchSizedKernels, self).linear(
                x[:, at].contiguous(), ReferenceLinear(dense.weight[:, at].contiguous(), None)
            )
            for at in (slice(None, half), slice(half, None))
        ]
        total = parts[0] + parts[1]
        return total if dense.bias is None else total + dense.bias


def test_gate_catches_a_split_by_batch_size() -> None:
    target = tiny_target(kernels=BatchSizedKernels())
    plain = alone(target, REQUESTS)
    drafter = Scripted("right", oracle(truth(plain)))
    assert views(serve(target, drafter, REQUESTS)) != views(plain)


def test_gate_catches_a_skipped_rollback(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.caches.paged import PagedCache

    def keep_everything(self: PagedCache, count: int) -> None:
        self.length += self._staged
        self._staged = 0
        self._trim()

    monkeypatch.setattr(PagedCache, "commit", keep_everything)
    drafter = adversaries(truth(plain), TINY.vocab_size)["wrong"]
    with pytest.raises(AssertionError, match=r"rows, .* committed"):
        serve(target, drafter, REQUESTS)


def test_gate_catches_an_unverified_draft(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.verify.samplers import DirectSampler

    def believe(self: object, row: Any, position: int, history: object, guess: Any) -> int:
        return int(guess.token) if guess is not None else int(row.choice)

    monkeypatch.setattr(DirectSampler, "sample", believe)
    drafter = adversaries(truth(plain), TINY.vocab_size)["wrong"]
    params = replace(GREEDY, logprobs=None)
    requests = [(prompt, params) for prompt in PROMPTS]
    assert views(serve(target, drafter, requests)) != views(alone(target, requests))


def test_gate_catches_a_stale_history(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LogitsSampler.processed

    def lagging(self: LogitsSampler, row: Any, history: Any) -> Any:
        if history.emitted % 3:
            history.counts.clear()
        return honest(self, row, history)

    monkeypatch.setattr(LogitsSampler, "processed", lagging)
    assert views(serve(target, None, REQUESTS)) != views(plain)


def test_gate_catches_noise_keyed_by_call(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(10**9))
    honest = ReferenceKernels.gumbel

    def drifting(self: Any, seed: int, stream: int, position: int, ids: torch.Tensor) -> Any:
        return honest(self, seed, stream, next(calls), ids)

    monkeypatch.setattr(ReferenceKernels, "gumbel", drifting)
    drafter = Scripted("right", oracle(truth(plain)))
    assert views(serve(target, drafter, REQUESTS)) != views(plain)


def test_gate_catches_a_drafter_reaching_the_output(
    target: Any, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = session_round._walk

    def shortcut(share: Any, results: Any, soundness: Any) -> list[int]:
        if share.draft.tokens:
            results = results[1:]
        return honest(share, results, soundness) if results else []

    monkeypatch.setattr(session_round, "_walk", shortcut)
    drafter = Scripted("right", oracle(truth(plain)))
    with pytest.raises((AssertionError, IndexError)):
        assert views(serve(target, drafter, REQUESTS)) == views(plain)
