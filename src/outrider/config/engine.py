"""Limits and choices of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from outrider.config.kv import KV_CACHE_DTYPES, KvCacheDtype
from outrider.types.errors import RequestError

Verification = Literal["coupled", "rejection"]
#: Where this build can run a model; "auto" takes the fastest.
Device = Literal["auto", "cpu"]


class EngineOptions(TypedDict, total=False):
    """The fields of ``EngineConfig`` as keyword arguments."""

    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    draft_length: int | None
    verification: Verification
    kv_bytes: int
    kv_cache_dtype: KvCacheDtype
    confidence_threshold: float


@dataclass(frozen=True)
class EngineConfig:
    """Engine limits. None but ``kv_cache_dtype`` can change a token of a coupled or greedy request.

    Attributes:
        max_model_len: most tokens of a session, prompt and output; None takes the model's own.
        max_num_seqs: sessions that share a pass.
        max_num_batched_tokens: rows of one pass that prefill may fill.
        draft_length: tokens to draft per round; None chooses by worth, round by round.
        verification: how sampled requests are judged.
        kv_bytes: budget of the target's KV pages in bytes.
        kv_cache_dtype: how the target's keys and values are kept, part of the numerics profile;
            "auto" is int8 for quantised weights and bfloat16 for others.
        confidence_threshold: a draft is cut before its first token whose confidence is below this;
            0 never cuts.
    """

    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    draft_length: int | None = None
    verification: Verification = "coupled"
    kv_bytes: int = 2 << 30
    kv_cache_dtype: KvCacheDtype = "auto"
    confidence_threshold: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_bytes"):
            value = self.__dict__[name]
            if value is not None and value < 1:
                raise RequestError(name, f"must be at least 1, not {value}")
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            raise RequestError(
                "kv_cache_dtype",
                f"must be one of {', '.join(KV_CACHE_DTYPES)}, not {self.kv_cache_dtype!r}",
            )
        if self.draft_length is not None and self.draft_length < 0:
            raise RequestError("draft_length", f"must be at least 0, not {self.draft_length}")
        if self.verification not in ("coupled", "rejection"):
            raise RequestError(
                "verification", f'must be "coupled" or "rejection", not {self.verification!r}'
            )
        if not 0.0 <= self.confidence_threshold <= 1.0:
            raise RequestError(
                "confidence_threshold", f"must be in [0, 1], not {self.confidence_threshold}"
            )
