"""How many pages the KV caches of an engine get, and how long a session can be with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outrider.caches.paged import pages_for
from outrider.config.engine import EngineConfig
from outrider.config.memory import Memory
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import PAGE_TOKENS
from outrider.models.target import Target
from outrider.types.errors import RequestError
from outrider.types.sizes import show_bytes

#: Bytes of the KV caches unless the caller says otherwise.
DEFAULT_BYTES: Final = 2 << 30
OPTION: Final = "kv_cache_memory_bytes (--kv-cache-memory-bytes)"
LENGTH_OPTION: Final = "max_model_len (--max-model-len)"


@dataclass(frozen=True)
class CacheBudget:
    """What the KV caches of one engine get.

    One session of ``max_model_len`` tokens always fits, with a spare page for one that is copied
    before it is written; sessions beyond that share the pages.

    Attributes:
        max_model_len: most tokens of a session, prompt and output.
        pages: pages of the target's cache, and as many of the drafter's.
        nbytes: bytes of all of them.
        note: one line about a context shorter than the model's, None if it is not.
    """

    max_model_len: int
    pages: int
    nbytes: int
    note: str | None = None


def cache_budget(
    target: Target, config: EngineConfig, draft_page_nbytes: int, memory: Memory | None = None
) -> CacheBudget:
    """Divide the bytes that a configuration allows.

    Args:
        target: the model.
        config: its limits.
        draft_page_nbytes: bytes of a page of the drafter's cache, 0 if it has none.
        memory: what this process can have; None asks the machine.

    Raises:
        RequestError: the length asked for exceeds the model's or does not fit the budget, the
            budget holds nothing, or it is memory that this machine does not have.
    """
    asked, limit = config.max_model_len, target.max_model_len
    if asked is not None and asked > limit:
        raise RequestError(
            "max_model_len", f"must be at most {limit}, the model's own, not {asked}"
        )
    memory = memory or Memory.read()
    allowed = _allowed(config, memory)
    page = target.model.allocate(1, config.kv_cache_dtype).page_nbytes + draft_page_nbytes
    held = allowed // page
    length, note = asked or limit, None
    if least_pages(length) > held:
        if asked is not None:
            raise RequestError(
                "max_model_len",
                f"{asked} tokens take {show_bytes(least_pages(asked) * page)} of KV cache and the "
                f"budget is {show_bytes(allowed)}; lower {LENGTH_OPTION} or raise {OPTION}",
            )
        length = (held - 1) * PAGE_TOKENS
        if length < 1:
            raise RequestError(
                "kv_cache_memory_bytes",
                f"{show_bytes(allowed)} hold no session: the first {PAGE_TOKENS} tokens take "
                f"{show_bytes(2 * page)} of KV cache; raise {OPTION}",
            )
        note = (
            f"the context is {length} of the model's {limit} tokens: {show_bytes(allowed)} of KV "
            f"cache hold no more; for another length set {LENGTH_OPTION} or {OPTION}"
        )
    pages = min(config.max_num_seqs * least_pages(length), held)
    # Cosine and sine of every position lie beside the caches.
    needed = pages * page + 4 * target.config.head_dim * length
    if needed > memory.free:
        raise RequestError(
            "kv_cache_memory_bytes",
            f"the KV caches take {show_bytes(needed)} and this process can have "
            f"{show_bytes(memory.free)} more; lower {OPTION} or {LENGTH_OPTION}",
        )
    return CacheBudget(length, pages, pages * page, note)


def allocate(target: Target, budget: CacheBudget, config: EngineConfig) -> PageStore:
    """Pages of the target's cache.

    Raises:
        RequestError: the system refuses the memory.
    """
    try:
        return target.model.allocate(budget.pages, config.kv_cache_dtype)
    except (MemoryError, RuntimeError):
        raise RequestError(
            "kv_cache_memory_bytes",
            f"this process cannot have {show_bytes(budget.nbytes)} of memory; lower {OPTION}",
        ) from None


def least_pages(length: int) -> int:
    """Pages with which one session of ``length`` tokens can always go on."""
    return pages_for(length) + 1


def _allowed(config: EngineConfig, memory: Memory) -> int:
    """Bytes that the caches may take."""
    asked = config.kv_cache_nbytes
    if asked is None:
        # Rotary tables take at most twice as much again, with a single head in a single layer.
        return min(DEFAULT_BYTES, memory.free // 4)
    if asked > memory.total:
        raise RequestError(
            "kv_cache_memory_bytes",
            f"is {show_bytes(asked)}, and this process can have {show_bytes(memory.total)} in all; "
            f"lower {OPTION}",
        )
    return asked
