"""Engines are made of parts in one place: what fits what, and what several engines share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drafters import drafter_toys as toys
from outrider.assembly.engine import assemble, assemble_with
from outrider.config.engine import EngineConfig
from outrider.drafters.context.drafter import ContextDrafter
from outrider.engine import Engine, Request
from outrider.models.target import Target
from outrider.types.errors import DrafterError, RequestError
from outrider.types.sampling import SamplingParams
from support.tiny import tiny_tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPT = [5, 9, 11, 5, 9]


@pytest.fixture
def target() -> Target:
    return Target("toy", "toy", toys.make_target(), tiny_tokenizer(toys.V), toys.POSITIONS)


def answer(engine: Engine) -> list[int]:
    request_id = engine.add(Request(PROMPT, GREEDY))
    while engine.has_unfinished:
        engine.step()
    return engine.take(request_id).outputs[0].token_ids


def test_target_and_drafter_reach_as_far_as_the_cache(target: Target, tmp_path: Path) -> None:
    folder = toys.write_folder(tmp_path, toys.zlab_config(), toys.block_tensors(toys.zlab_config()))
    page = target.model.allocate(1).page_nbytes
    parts = assemble(target, str(folder), EngineConfig(kv_cache_memory_bytes=5 * page))
    assert isinstance(parts.drafter, ContextDrafter)
    reach = parts.budget.max_model_len
    assert 0 < reach < target.max_model_len
    assert parts.target.model.positions == parts.drafter.max_position == reach
    assert parts.drafter.pool.store.pages == parts.budget.pages
    # The loaded drafter asks for the same share that its folder did.
    assert assemble_with(target, parts.drafter, parts.config).budget == parts.budget


def test_engines_of_the_same_parts_serve_one_after_another(target: Target, tmp_path: Path) -> None:
    folder = toys.write_folder(tmp_path, toys.zlab_config(), toys.block_tensors(toys.zlab_config()))
    plain = answer(assemble_with(target, None, EngineConfig()).engine())
    parts = assemble(target, str(folder), EngineConfig(max_num_seqs=2))
    for draft_length in (1, 3, 3):
        config = replace(parts.config, draft_length=draft_length)
        engine = replace(parts, config=config).engine()
        assert answer(engine) == plain
        engine.audit()


def test_plain_decoding_has_all_bytes_to_itself(target: Target) -> None:
    named = assemble(target, "none", EngineConfig())
    given = assemble_with(target, None, EngineConfig())
    assert named.drafter is given.drafter is None
    assert named.budget == given.budget


def test_what_cannot_be_made_is_refused(target: Target) -> None:
    with pytest.raises(DrafterError, match="nonsense: not a drafter; use auto, none, ngram"):
        assemble(target, "nonsense", EngineConfig())
    with pytest.raises(RequestError, match="max_model_len: must be at most"):
        assemble(target, "none", EngineConfig(max_model_len=toys.POSITIONS + 1))
