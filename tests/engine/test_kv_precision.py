"""Precision of keys and values: what is chosen, what it costs, and that it keeps the promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.config.engine import EngineConfig
from outrider.config.kv import KvDtype, kv_dtype
from outrider.engine.budget import cache_budget
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.rows import PAGE_TOKENS, Rows
from outrider.kernels.select import select
from outrider.kernels.table import Kernels
from outrider.kernels.weights import RawWeight
from outrider.models.dense import DenseModel
from outrider.models.target import Target
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams
from support.adversaries import Scripted, oracle
from support.run import alone, make_engine, serve, truth, views
from support.tiny import TINY, random_weight, tiny_target

DTYPES = get_args(KvDtype)
FAST = select("cpu")
KERNELS = [ReferenceKernels(), *([FAST] if FAST.name != "reference" else [])]
BYTES = {"int8": 1, "bfloat16": 2, "float32": 4}

pytestmark = pytest.mark.parametrize("kernels", KERNELS, ids=lambda k: k.name)


def quantized_weight(name: str, shape: tuple[int, ...]) -> RawWeight:
    """``random_weight``, but for one matrix in blocks of integers."""
    weight = random_weight(name, shape)
    if name != "model.layers.1.mlp.down_proj.weight":
        return weight
    blocks = quantize(weight.data.numpy(), GGMLQuantizationType.Q8_0)
    return RawWeight(name, shape, "Q8_0", torch.from_numpy(blocks))


def quantized_target(kernels: Kernels) -> Target:
    return replace(tiny_target(), model=DenseModel(TINY, kernels, quantized_weight, 256))


def test_auto_follows_the_weights(kernels: Kernels) -> None:
    """One rule for every implementation: the profile is not told twice."""
    assert [kv_dtype("auto", quantized) for quantized in (True, False)] == ["int8", "bfloat16"]
    config = EngineConfig(max_num_seqs=1)
    for target, expected in (
        (tiny_target(kernels=kernels), "bfloat16"),
        (quantized_target(kernels), "int8"),
    ):
        assert make_engine(target, None, config).kv_cache_dtype == expected
        assert target.model.allocate(1).dtype == expected
        for dtype in DTYPES:
            asked = replace(config, kv_cache_dtype=dtype)
            assert make_engine(target, None, asked).kv_cache_dtype == dtype
            assert target.model.allocate(1, dtype).dtype == dtype


@pytest.mark.parametrize("wrong", ["fp8", "INT8", "", "bf16", None, 8, torch.float32])
def test_unknown_precision_is_refused_by_name(kernels: Kernels, wrong: Any) -> None:
    with pytest.raises(RequestError, match=r"kv_cache_dtype.*auto, int8, bfloat16, float32"):
        EngineConfig(kv_cache_dtype=wrong)


def test_the_budget_counts_what_pages_take(kernels: Kernels) -> None:
    target = tiny_target(kernels=kernels)
    for dtype in DTYPES:
        page = target.model.allocate(1, dtype).page_nbytes
        if kernels.name != "reference":
            # Two layers of two heads: keys of 8 dimensions, values padded to 16, int8 scales.
            head = (8 + 16) * BYTES[dtype] + (8 if dtype == "int8" else 0)
            assert page == 2 * 2 * PAGE_TOKENS * head
        config = EngineConfig(max_model_len=40, max_num_seqs=64, kv_cache_dtype=dtype)
        enough = replace(config, kv_cache_memory_bytes=page * 7 + page - 1)
        assert cache_budget(target, enough, 0).pages == 7
        with pytest.raises(RequestError, match="budget"):
            cache_budget(target, replace(config, kv_cache_memory_bytes=page * 3 - 1), 0)


def logits(model: DenseModel, dtype: KvDtype) -> torch.Tensor:
    """Logits of 150 positions, fed in three pieces."""
    pool = PagePool(model.allocate(8, dtype))
    cache, parts = PagedCache(pool), []
    ids = torch.randint(0, 48, (150,), generator=torch.Generator().manual_seed(3))
    for piece in ids.split((70, 1, 79)):
        rows = Rows((cache.stage(len(piece)),))
        every = torch.arange(len(piece))
        parts.append(model.logits(model.forward(piece, rows, pool.store, every).hidden))
        cache.commit(len(piece))
    return torch.cat(parts)


def test_more_bits_are_nearer_to_float32(kernels: Kernels) -> None:
    exact = logits(tiny_target().model, "float32")
    errors = [
        float((logits(tiny_target(kernels=kernels).model, dtype) - exact).norm() / exact.norm())
        for dtype in DTYPES
    ]
    assert errors[0] < 0.03
    assert errors[1] < errors[0] / 1.5
    assert errors[2] < min(errors[1] / 100, 1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_drafting_and_company_change_nothing(kernels: Kernels, dtype: KvDtype) -> None:
    target = tiny_target(kernels=kernels)
    requests = [
        (list(range(1, 34)), SamplingParams(temperature=0, seed=0, max_tokens=24)),
        ([5, 9, 2], SamplingParams(temperature=0.9, seed=4, max_tokens=40, logprobs=2)),
        ([7] * 45, SamplingParams(temperature=0.7, seed=1, top_k=12, max_tokens=30)),
    ]
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=13, kv_cache_dtype=dtype)
    plain = alone(target, requests, config)
    drafter = Scripted("right", oracle(truth(plain)))
    drafted = replace(config, draft_length=5)
    assert views(serve(target, drafter, requests, gap=2, config=drafted)) == views(plain)
