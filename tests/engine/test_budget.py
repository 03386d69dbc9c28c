"""KV caches within their budget: how long a session can be, and what the drafter's pages take."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from drafters import drafter_toys as toys
from outrider.assembly.drafter import DrafterChoice
from outrider.assembly.engine import assemble
from outrider.config.engine import EngineConfig
from outrider.config.memory import Memory
from outrider.drafters.context.drafter import ContextDrafter
from outrider.drafters.hybrid import HybridDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine import Request
from outrider.engine.budget import cache_budget
from outrider.models.target import Target
from outrider.types.errors import RequestError
from outrider.types.sampling import SamplingParams
from support.run import alone, make_engine, serve, views
from support.tiny import tiny_target, tiny_tokenizer

TARGET = tiny_target()  # 256 positions
PAGE = TARGET.model.allocate(1).page_nbytes
AMPLE = Memory(1 << 40, 1 << 40)
GREEDY = SamplingParams(temperature=0, seed=1, max_tokens=400, ignore_eos=True)


def budget(draft_page: int = 0, memory: Memory = AMPLE, **options: Any) -> Any:
    return cache_budget(TARGET, EngineConfig(**options), draft_page, memory)


def refusal(draft_page: int = 0, memory: Memory = AMPLE, **options: Any) -> str:
    with pytest.raises(RequestError) as caught:
        budget(draft_page, memory, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("pages", "draft_page", "length"),
    [
        (9, 0, 256),
        (8, 0, 224),
        (5, 0, 128),
        (2, 0, 32),
        (18, PAGE, 256),
        (17, PAGE, 224),
        (10, PAGE, 128),
        (9, PAGE, 96),
        (9, PAGE // 2, 160),
    ],
)
def test_a_session_gets_what_the_caches_hold(pages: int, draft_page: int, length: int) -> None:
    found = budget(draft_page, kv_cache_memory_bytes=pages * PAGE)
    assert found.max_model_len == length
    assert found.nbytes == found.pages * (PAGE + draft_page) <= pages * PAGE
    assert found.pages * 32 >= length + 32
    assert (found.note is None) == (length == 256)
    if found.note is not None:
        assert f"the context is {length} of the model's 256 tokens" in found.note
        assert "max_model_len (--max-model-len)" in found.note
        assert "kv_cache_memory_bytes (--kv-cache-memory-bytes)" in found.note


def test_seats_get_their_pages_up_to_the_budget() -> None:
    for seats, pages in ((1, 3), (2, 6), (7, 21), (8, 21)):
        found = budget(max_model_len=64, max_num_seqs=seats, kv_cache_memory_bytes=21 * PAGE)
        assert (found.max_model_len, found.pages) == (64, pages)


def test_a_length_that_was_asked_for_is_had_or_refused() -> None:
    assert budget(max_model_len=128, kv_cache_memory_bytes=5 * PAGE).max_model_len == 128
    text = refusal(max_model_len=129, kv_cache_memory_bytes=5 * PAGE)
    assert text == (
        "max_model_len: 129 tokens take 48 KiB of KV cache and the budget is 40 KiB; lower "
        "max_model_len (--max-model-len) or raise kv_cache_memory_bytes (--kv-cache-memory-bytes)"
    )
    assert "129 tokens take" in refusal(PAGE, max_model_len=129, kv_cache_memory_bytes=11 * PAGE)
    assert budget(PAGE, max_model_len=129, kv_cache_memory_bytes=12 * PAGE).max_model_len == 129
    assert refusal(max_model_len=257) == (
        "max_model_len: must be at most 256, the model's own, not 257"
    )


def test_a_budget_without_room_for_a_session() -> None:
    for room in (1, PAGE, 2 * PAGE - 1):
        text = refusal(kv_cache_memory_bytes=room)
        assert "hold no session: the first 32 tokens take 16 KiB of KV cache" in text
        assert text.startswith("kv_cache_memory_bytes: ")


def test_memory_that_is_not_there() -> None:
    text = refusal(memory=Memory(100 * PAGE, 90 * PAGE), kv_cache_memory_bytes=101 * PAGE)
    assert text.startswith("kv_cache_memory_bytes: is 808 KiB, and this process can have 800 KiB")
    text = refusal(memory=Memory(100 * PAGE, 5 * PAGE), kv_cache_memory_bytes=50 * PAGE)
    # 50 pages of 8 KiB, and 256 positions of 4 cosines and 4 sines.
    assert text.startswith("kv_cache_memory_bytes: the KV caches take 408 KiB and this process can")
    small = budget(memory=Memory(100 * PAGE, 20 * PAGE))
    assert (small.max_model_len, small.pages) == (128, 5), "a quarter of what is free"
    assert "hold no session" in refusal(memory=Memory(100 * PAGE, 0))


def test_a_system_that_refuses_memory_is_told_in_a_line(monkeypatch: Any) -> None:
    allocate = type(TARGET.model).allocate

    def refusing(self: Any, pages: int, dtype: Any = "auto") -> Any:
        if pages > 1:
            raise MemoryError
        return allocate(self, pages, dtype)

    monkeypatch.setattr(type(TARGET.model), "allocate", refusing)
    with pytest.raises(RequestError, match="kv_cache_memory_bytes: this process cannot have"):
        make_engine(TARGET, None, EngineConfig())


def test_an_answer_fills_a_context_that_the_budget_shortened() -> None:
    config = EngineConfig(kv_cache_memory_bytes=4 * PAGE, max_num_seqs=4)
    prompts = [[5, 9, 11, 5, 9, 11], list(range(1, 40)), [3, 4]]
    requests = [(prompt, GREEDY) for prompt in prompts]
    outputs = serve(TARGET, NgramDrafter(), requests, config=config)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert len(prompt) + len(output.outputs[0].token_ids) == 96
        assert output.outputs[0].finish_reason == "length"
    whole = alone(TARGET, requests)
    assert [o.outputs[0].token_ids for o in outputs] == [
        w.outputs[0].token_ids[: len(o.outputs[0].token_ids)]
        for o, w in zip(outputs, whole, strict=True)
    ]
    with pytest.raises(RequestError, match="maximum context length is 96 tokens"):
        make_engine(TARGET, None, config).add(Request(list(range(1, 41)) * 3, GREEDY))


# -- drafters with a cache of their own -----------------------------------------------------------


def toy_target() -> Target:
    return Target("toy", "toy", toys.make_target(), tiny_tokenizer(toys.V), toys.POSITIONS)


def toy_folder(path: Path, kind: str) -> Path:
    if kind == "mtp":
        config = toys.mtp_config()
        return toys.write_folder(path, config, toys.mtp_tensors(config))
    config = toys.zlab_config(kind)
    return toys.write_folder(path, config, toys.block_tensors(config))


@pytest.mark.parametrize("kind", ["DFlashDraftModel", "DSparkDraftModel", "mtp"])
@pytest.mark.parametrize("length", [None, 40])
def test_draft_pages_count_and_reach_the_context(
    tmp_path: Path, kind: str, length: int | None
) -> None:
    target = toy_target()
    page = target.model.allocate(1).page_nbytes
    config = EngineConfig(
        max_model_len=length, kv_cache_memory_bytes=5 * page, max_num_seqs=3, draft_length=3
    )
    parts = assemble(target, str(toy_folder(tmp_path, kind)), config)
    engine, found = parts.engine(), parts.budget
    drafter = engine._drafter
    assert isinstance(drafter, ContextDrafter)
    stores = (engine._pool.store, drafter.pool.store)
    assert sum(store.pages * store.page_nbytes for store in stores) == found.nbytes <= 5 * page
    assert stores[0].pages == stores[1].pages == found.pages
    assert found.max_model_len == engine.max_model_len
    assert found.max_model_len == (length or (5 * page // (page + drafter.page_nbytes) - 1) * 32)
    assert found.pages * 32 >= found.max_model_len + 32
    # A drafter counts what it can see of the session, and its tables end a draft later.
    assert drafter.max_position == found.max_model_len
    assert engine._target.model.positions == found.max_model_len
    stack = drafter.stack if kind == "mtp" else drafter.backbone.stack  # type: ignore[attr-defined]
    assert 0 < stack.positions - found.max_model_len <= 16
    prompts = [[5, 9, 11, 5], [3, 4, 7], list(range(1, 20))]
    requests = [(prompt, GREEDY) for prompt in prompts]
    ids = [engine.add(Request(*request)) for request in requests]
    while engine.has_unfinished:
        engine.step()
        engine.audit()
    outputs = [engine.take(request_id) for request_id in ids]
    plain = alone(target, requests, replace(config, max_model_len=found.max_model_len))
    assert views(outputs) == views(plain)
    assert all(o.metrics.speculation.faults == 0 for o in outputs)


#: Keys and values of 32 tokens in 2 heads of 16 floats, per layer.
LAYER_PAGE = 2 * 32 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("kind", "layers"),
    [("DFlashDraftModel", 2), ("DFlash2DraftModel", 2), ("DSparkDraftModel", 2), ("mtp", 1)],
)
@pytest.mark.parametrize("copies", [False, True])
def test_a_drafters_page_is_known_before_it_is_loaded(
    tmp_path: Path, kind: str, layers: int, copies: bool
) -> None:
    options = {"conv_kernel_size": 3, "conv_group_size": 16, "selector_rank": 8}
    config = toys.mtp_config() if kind == "mtp" else toys.zlab_config(kind, top=options)
    folder = toys.write_folder(tmp_path, {**config, "selector_top_k": 4}, {})
    choice = DrafterChoice(copies, folder)
    assert choice.page_nbytes(toy_target()) == layers * LAYER_PAGE
    assert DrafterChoice(copies).page_nbytes(toy_target()) == 0


@pytest.mark.parametrize("kind", ["DSparkDraftModel", "mtp"])
def test_draft_pages_count_where_copies_go_first(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learned half of ``auto`` has pages, and they are of the same budget."""
    target, folder = toy_target(), toy_folder(tmp_path, kind)
    monkeypatch.setattr("outrider.assembly.drafter.shipped_for", lambda config: folder)
    room = 5 * target.model.allocate(1).page_nbytes
    config = EngineConfig(kv_cache_memory_bytes=room, max_num_seqs=3, draft_length=3)
    parts = assemble(target, "auto", config)
    engine, found, drafter = parts.engine(), parts.budget, parts.drafter
    assert isinstance(drafter, HybridDrafter)
    assert isinstance(drafter.learned, ContextDrafter)
    assert drafter.page_nbytes == LAYER_PAGE * (1 if kind == "mtp" else 2)
    stores = (engine._pool.store, drafter.learned.pool.store)
    assert sum(store.pages * store.page_nbytes for store in stores) == found.nbytes <= room
    assert stores[0].pages == stores[1].pages == found.pages
    assert NgramDrafter().page_nbytes == 0


# -- prices of a short context ---------------------------------------------------------------------


@cache
def first_tokens() -> list[int]:
    """What follows token 5, for longer than the contexts below."""
    params = replace(GREEDY, max_tokens=40)
    return (
        alone(toy_target(), [([5], params)], EngineConfig(max_num_seqs=1))[0].outputs[0].token_ids
    )


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 12, 13, 15, 16, 17, 33])
@pytest.mark.parametrize("kind", ["ngram", "DFlashDraftModel", "DSparkDraftModel", "mtp", "auto"])
def test_a_short_context_works_with_every_drafter(tmp_path: Path, length: int, kind: str) -> None:
    """Prices are measured with as many rows as a session can have."""
    target = toy_target()
    spec = kind if kind in ("ngram", "auto") else str(toy_folder(tmp_path, kind))
    config = EngineConfig(max_model_len=length, max_num_seqs=2)
    engine = assemble(target, spec, config).engine()
    if length == 1:
        with pytest.raises(RequestError, match=r"max_model_len: .* must be at least 2"):
            engine.add(Request([5], GREEDY))
        return
    request_id = engine.add(Request([5], GREEDY))
    while engine.has_unfinished:
        engine.step()
        engine.audit()
    assert engine.take(request_id).outputs[0].token_ids == first_tokens()[: length - 1]


def test_prices_are_measured_where_there_is_room() -> None:
    config = EngineConfig(max_model_len=6)
    ticks = itertools.count()
    engine = make_engine(toy_target(), NgramDrafter(), config, clock=lambda: next(ticks) / 1000)
    profile = engine._runner.profile(engine._pool, 6)
    assert [rows for rows, _ in profile] == [1, 2, 4]
    assert all(seconds > 0 for _, seconds in profile)
    assert [rows for rows, _ in engine._runner.profile(engine._pool, 1)] == [1]
