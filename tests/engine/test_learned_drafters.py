"""The promise with real drafter networks: random weights draft badly, and still change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from drafters import drafter_toys as toys
from outrider.config.engine import EngineConfig
from outrider.drafters.base import Drafter, Proposal
from outrider.drafters.hybrid import HybridDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.kernels.reference import ReferenceKernels
from outrider.models.target import Target
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, oracle
from support.run import ListPrices, alone, serve, views
from support.tiny import tiny_tokenizer

PROMPTS = [[5, 9, 11, 5, 9, 11, 5, 9], [3, 4], list(range(1, 50)), [7, 7, 7]]
REQUESTS = [
    (prompt, params)
    for prompt in PROMPTS
    for params in (
        SamplingParams(temperature=0, seed=1, max_tokens=22, ignore_eos=True),
        SamplingParams(temperature=0.8, seed=7, max_tokens=20),
        SamplingParams(temperature=1.0, seed=3, top_p=0.9, max_tokens=20, repetition_penalty=1.1),
    )
]
DSPARK = {"markov_rank": 8, "enable_confidence_head": True, "confidence_head_with_markov": True}


@pytest.fixture(scope="module")
def target() -> Target:
    return Target("toy", "toy", toys.make_target(), tiny_tokenizer(toys.V), toys.POSITIONS)


@pytest.fixture(scope="module")
def plain(target: Target) -> Any:
    return alone(target, REQUESTS)


def sliding(kind: str) -> dict[str, Any]:
    return toys.zlab_config(
        kind, top={"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 12}
    )


MAKERS: dict[str, Callable[[Path, Target], Drafter]] = {
    "dflash": lambda path, t: toys.load(path, t.model, toys.zlab_config()),
    "dflash-sliding": lambda path, t: toys.load(path, t.model, sliding("DFlashDraftModel")),
    "dspark": lambda path, t: toys.load(
        path, t.model, toys.zlab_config("DSparkDraftModel", **DSPARK)
    ),
    "dspark-rnn": lambda path, t: toys.load(
        path, t.model, toys.zlab_config("DSparkDraftModel", markov_head_type="rnn", **DSPARK)
    ),
    "mtp": lambda path, t: toys.load(
        path, t.model, toys.mtp_config(), toys.mtp_tensors(toys.mtp_config())
    ),
    "hybrid": lambda path, t: HybridDrafter(
        NgramDrafter(), toys.load(path, t.model, toys.zlab_config("DSparkDraftModel", **DSPARK))
    ),
}


@pytest.fixture(params=list(MAKERS))
def drafter(request: pytest.FixtureRequest, tmp_path: Path, target: Target) -> Iterator[Drafter]:
    made = MAKERS[request.param](tmp_path, target)
    yield made
    made.audit([])


@pytest.mark.parametrize("length", [None, 1, 2, 3, 5, 7])
def test_token_identical(target: Target, plain: Any, drafter: Drafter, length: int | None) -> None:
    config = EngineConfig(
        max_num_seqs=1 + (length or 3), draft_length=length, max_num_batched_tokens=9
    )
    outputs = serve(target, drafter, REQUESTS, gap=1, config=config)
    assert views(outputs) == views(plain)
    assert sum(o.metrics.speculation.faults for o in outputs) == 0
    if length:
        assert sum(o.metrics.speculation.drafted for o in outputs) > 50


def test_forks_keep_drafting(target: Target, drafter: Drafter) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=12, ignore_eos=True)
    config = EngineConfig(max_num_seqs=4, draft_length=3)
    together = serve(target, drafter, [(PROMPTS[2], params)], config=config)
    assert views(together) == views(alone(target, [(PROMPTS[2], params)]))
    assert together[0].metrics.speculation.faults == 0


def test_a_poisoned_tap_never_reaches_the_output(
    target: Target, plain: Any, drafter: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ReferenceKernels.run_layers
    calls = iter(range(10**9))

    def poisoned(self: Any, *args: Any) -> Any:
        x, taps = honest(self, *args)
        if taps is not None and next(calls) % 3 == 0:
            taps[::2] = float("nan")
        return x, taps

    monkeypatch.setattr(ReferenceKernels, "run_layers", poisoned)
    config = EngineConfig(max_num_seqs=3, draft_length=4)
    assert views(serve(target, drafter, REQUESTS, config=config)) == views(plain)


# -- rejection sampling through the whole engine


def position_counts(outputs: Any, position: int, bins: int = 16) -> np.ndarray:
    counts = np.zeros(bins)
    for output in outputs:
        counts[output.outputs[0].token_ids[position] % bins] += 1
    return counts


def few(base: int, count: int = 500) -> Any:
    """Many short requests over a handful of likely tokens."""
    return [
        (PROMPTS[0], SamplingParams(temperature=1.2, top_k=6, seed=base + i, max_tokens=3))
        for i in range(count)
    ]


@pytest.mark.parametrize("name", ["dspark", "likely"])
def test_rejection_has_plain_samplings_distribution(
    target: Target, tmp_path: Path, name: str
) -> None:
    plain = serve(target, None, few(10**6), config=EngineConfig(max_num_seqs=64))
    common = [int(position_counts(plain, place, toys.V).argmax()) for place in (0, 1, 2)]
    made: Drafter = MAKERS["dspark"](tmp_path, target)
    if name == "likely":
        made = Scripted("likely", lambda known, length: [common[1]])
    config = EngineConfig(max_num_seqs=64, draft_length=2, verification="rejection")
    drafted = serve(target, made, few(0), config=config)
    if name == "likely":
        accepted = sum(o.metrics.speculation.accepted for o in drafted)
        assert accepted > 20, "a test in which nothing is accepted would prove nothing"
    for place in (0, 1, 2):
        both = [
            [o for o in side if len(o.outputs[0].token_ids) > place] for side in (drafted, plain)
        ]
        table = np.stack([position_counts(side, place) for side in both])
        table = table[:, table.sum(0) > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-4


def sure(lines: list[list[int]]) -> Scripted:
    """An oracle that knows that it is one."""
    right = oracle(lines)

    def guess(known: list[int], length: int) -> Proposal:
        tokens = right(known, length)
        return Proposal(tokens, None, [0.99] * len(tokens))

    return Scripted("sure", guess)


def test_coupled_sampling_believes_an_oracle(target: Target, plain: Any) -> None:
    """Where rows cost nothing: every answer is then a few whole drafts."""
    lines = [[*o.prompt_token_ids, *o.outputs[0].token_ids] for o in plain]
    outputs = serve(target, sure(lines), REQUESTS, goodput=ListPrices([(1, 1.0)], 0.01))
    assert views(outputs) == views(plain)
    for output in outputs:
        speculation, tokens = output.metrics.speculation, len(output.outputs[0].token_ids)
        assert speculation.accepted + speculation.rounds == tokens
        assert speculation.rounds <= 2 + -(-tokens // 8), "the first draft is of 8 tokens"


def test_an_oracle_is_not_asked_where_drafts_cost_more_than_passes(
    target: Target, plain: Any
) -> None:
    lines = [[*o.prompt_token_ids, *o.outputs[0].token_ids] for o in plain]
    dear = ListPrices([(1, 1.0), (2, 2.0)], 5.0)
    outputs = serve(target, sure(lines), REQUESTS, goodput=dear)
    assert views(outputs) == views(plain)
    assert max(o.metrics.speculation.drafted for o in outputs) <= 4, "a probe or two, of 2 tokens"


@pytest.mark.parametrize("kind", ["dspark", "hybrid"])
def test_siblings_draw_with_their_own_noise(target: Target, tmp_path: Path, kind: str) -> None:
    """A completion forked off a prompt drafts as a request of its own seed does."""
    config = EngineConfig(max_num_seqs=4, draft_length=5)
    params = SamplingParams(n=3, temperature=0.7, seed=40, max_tokens=30, ignore_eos=True)
    together = serve(target, MAKERS[kind](tmp_path, target), [(PROMPTS[2], params)], config=config)
    singles = [
        serve(
            target,
            MAKERS[kind](tmp_path, target),
            [(PROMPTS[2], replace(params, n=1, seed=40 + index))],
            config=config,
        )[0]
        for index in range(3)
    ]
    accepted = sum(single.metrics.speculation.accepted for single in singles)
    assert together[0].metrics.speculation.accepted == accepted
    assert accepted > 0
