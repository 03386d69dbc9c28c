"""Logits that are not numbers: the request that meets them fails by name, and nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from outrider.config.engine import EngineConfig
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.table import Kernels
from outrider.models.dense import _finite_rows
from outrider.types.errors import NumericsError
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted
from support.damaged import UNTIED, damaged
from support.run import alone, serve, views
from support.tiny import tiny_target

GREEDY = SamplingParams(temperature=0, seed=1, max_tokens=6, ignore_eos=True)
KINDS = {
    "greedy": GREEDY,
    "drawn": replace(GREEDY, temperature=0.8, seed=3),
    "filtered": replace(GREEDY, temperature=0.8, seed=3, top_p=0.9),
    "logprobs": replace(GREEDY, logprobs=2),
}
BAD_TOKEN = 40


def implementations() -> dict[str, Kernels]:
    found: dict[str, Kernels] = {"reference": ReferenceKernels()}
    try:
        from outrider.kernels import _native
        from outrider.kernels.cpu.kernels import CpuKernels
    except ImportError:
        return found
    return found | {path: CpuKernels(threads=2, path=path) for path in _native.paths()}


KERNELS = implementations()


PLACES = [
    ("model.embed_tokens.weight", "the embedding"),
    ("model.layers.0.input_layernorm.weight", "layer 0 (model.layers.0)"),
    ("model.layers.0.mlp.down_proj.weight", "layer 0 (model.layers.0)"),
    ("model.layers.1.self_attn.v_proj.weight", "layer 1 (model.layers.1)"),
    ("model.norm.weight", "the final norm"),
    ("lm_head.weight", "the head"),
]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("tensor", "place"), PLACES)
def test_the_first_bad_part_is_named(tensor: str, place: str, value: float, kind: str) -> None:
    for kernels in KERNELS.values():
        target = damaged(kernels, tensor, value)
        (output,) = serve(target, None, [([3, 4, 5], KINDS[kind])])
        assert isinstance(output.error, NumericsError), kernels.name
        assert output.error.place == place
        assert output.outputs[0].finish_reason == "error"
        assert output.outputs[0].token_ids == []


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_row_of_the_head_is_enough(value: float, kind: str) -> None:
    """One logit of many: skipping it would choose among the rest in silence."""
    for kernels in KERNELS.values():
        target = damaged(kernels, "lm_head.weight", value, row=37)
        (output,) = serve(target, None, [([3, 4, 5], KINDS[kind])])
        assert isinstance(output.error, NumericsError), kernels.name
        assert output.error.place == "the head"


@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_others_go_on(chunk: int) -> None:
    """A token whose embedding is bad spoils the requests that hold it, wherever it stands."""
    good = [([3, 4, 5, 6], params) for params in KINDS.values()]
    bad = [([3, 4, BAD_TOKEN, 6, 7, 8, 9], params) for params in KINDS.values()]
    mixed = [pair for two in zip(good, bad, strict=True) for pair in two]
    for kernels in KERNELS.values():
        sound = alone(tiny_target(UNTIED, kernels), good)
        target = damaged(kernels, "model.embed_tokens.weight", float("nan"), row=BAD_TOKEN)
        for config in (
            EngineConfig(max_num_seqs=min(8, chunk), max_num_batched_tokens=chunk),
            EngineConfig(max_num_seqs=min(3, chunk), max_num_batched_tokens=chunk),
        ):
            outputs = serve(target, None, mixed, gap=1, config=config)
            assert views(outputs[::2]) == views(sound), kernels.name
            for output in outputs[1::2]:
                assert isinstance(output.error, NumericsError)
                assert output.error.place == "the embedding"


def test_a_drafted_row_that_is_not_reached_may_be_anything() -> None:
    """Plain decoding never meets the drafted token, so drafting it must do no harm."""
    requests = [([3, 4, 5, 6], params) for params in KINDS.values()]
    for kernels in KERNELS.values():
        target = damaged(kernels, "model.embed_tokens.weight", float("nan"), row=BAD_TOKEN)
        plain = alone(target, requests)
        assert all(output.error is None for output in plain)
        assert all(BAD_TOKEN not in output.outputs[0].token_ids for output in plain)
        drafter = Scripted("bad", lambda known, length: [BAD_TOKEN] * length)
        config = EngineConfig(max_num_seqs=4, draft_length=4)
        drafted = serve(target, drafter, requests, config=config)
        assert views(drafted) == views(plain), kernels.name


def test_all_completions_of_the_request_end() -> None:
    target = damaged(ReferenceKernels(), "lm_head.weight", float("nan"), row=2)
    requests = [([3, 4], replace(GREEDY, temperature=1.0, n=3))]
    (output,) = serve(target, None, requests)
    assert [c.finish_reason for c in output.outputs] == ["error"] * 3


def test_a_sum_that_overflows_is_no_fault() -> None:
    """Large but finite states: their sum is infinite in float32, and every one is a number."""
    large = torch.full((2, 32), 3e38, dtype=torch.float32)
    assert _finite_rows(large) is None
    large[1, 7] = torch.inf
    assert _finite_rows(large).tolist() == [True, False]


@pytest.mark.parametrize(
    "tensor",
    ["layers.0.mlp.down_proj", "layers.1.self_attn.o_proj", "layers.1.mlp.down_proj"],
)
def test_squares_that_overflow_are_no_answer(tensor: str) -> None:
    """One flipped bit of an exponent: states are finite, but normed they would be rows of zeros."""
    for kernels in KERNELS.values():
        target = damaged(kernels, f"model.{tensor}.weight", 1e30, row=3)
        (output,) = serve(target, None, [([3, 4, 5], GREEDY)])
        assert isinstance(output.error, NumericsError), kernels.name
        assert output.outputs[0].token_ids == []
