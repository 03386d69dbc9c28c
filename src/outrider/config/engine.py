"""Limits and choices of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypedDict, get_args

from outrider.config.kv import KV_CACHE_DTYPES, KvCacheDtype
from outrider.types.errors import RequestError
from outrider.types.lines import shown
from outrider.types.names import Parameters
from outrider.types.numbers import integer, number
from outrider.types.sizes import parse_bytes
from outrider.types.synonyms import OPTIONS

Verification = Literal["coupled", "rejection"]
#: Where this build can run a model; "auto" takes the fastest.
Device = Literal["auto", "cpu"]

#: Largest count of tokens or sessions.
MAX_COUNT: Final = 2**31 - 1
#: Largest count of bytes.
MAX_BYTES: Final = 2**63 - 1


class EngineOptions(TypedDict, total=False):
    """The fields of ``EngineConfig`` as keyword arguments."""

    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    draft_length: int | None
    verification: Verification
    kv_cache_memory_bytes: int | str | None
    kv_cache_dtype: KvCacheDtype
    confidence_threshold: float


@dataclass(frozen=True)
class EngineConfig(Parameters):
    """Engine limits. None but ``kv_cache_dtype`` can change a token of a coupled or greedy request.

    Names are vLLM's where it has one. Of those, ``max_num_seqs`` and ``max_num_batched_tokens``
    have smaller defaults here, and the two that are None by default mean what is said below.

    Attributes:
        max_model_len: most tokens of a session, prompt and output; None takes the model's own
            limit, or as much of it as the KV caches have room for (vLLM: the model's limit).
        max_num_seqs: sessions that share a pass; they share the pages of the KV caches too.
        max_num_batched_tokens: rows of one pass, decoding and drafts included; at least
            ``max_num_seqs``, so that every session in flight has one. Where it is short, each
            session's own row comes first, drafts are cut, and prompts are fed with what is left.
        draft_length: tokens to draft per round; None chooses by goodput, round by round.
        verification: how sampled requests are judged.
        kv_cache_memory_bytes: most bytes of the KV caches, the target's and the drafter's
            together: a number, or an amount such as "2GiB". None is 2 GiB, or a quarter of the
            free memory if that is less (vLLM: what ``gpu_memory_utilization`` leaves). Memory is
            taken only as pages are filled.
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
    kv_cache_memory_bytes: int | str | None = None
    kv_cache_dtype: KvCacheDtype = "auto"
    confidence_threshold: float = 0.0

    WHAT = "engine option"
    HINTS = OPTIONS

    @property
    def kv_cache_nbytes(self) -> int | None:
        """Most bytes of the KV caches as a number; None leaves the choice to the engine."""
        asked = self.kv_cache_memory_bytes
        return parse_bytes("kv_cache_memory_bytes", asked) if isinstance(asked, str) else asked

    def __post_init__(self) -> None:
        """Check every field, and store numbers as Python's own.

        Raises:
            RequestError: a value is of a wrong type or out of range; it names the option.
        """
        object.__setattr__(self, "kv_cache_memory_bytes", self.kv_cache_nbytes)
        for name, low, high, optional in (
            ("max_model_len", 1, MAX_COUNT, True),
            ("max_num_seqs", 1, MAX_COUNT, False),
            ("max_num_batched_tokens", 1, MAX_COUNT, False),
            ("draft_length", 0, MAX_COUNT, True),
            ("kv_cache_memory_bytes", 1, MAX_BYTES, True),
        ):
            value = self.__dict__[name]
            if value is not None or not optional:
                object.__setattr__(self, name, integer(name, value, low, high))
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise RequestError(
                "max_num_batched_tokens",
                f"must be at least max_num_seqs, {self.max_num_seqs}, so that every session in "
                f"flight has a row, not {self.max_num_batched_tokens}; raise it or lower "
                "max_num_seqs",
            )
        dtype = self.kv_cache_dtype
        if not isinstance(dtype, str) or dtype not in KV_CACHE_DTYPES:
            raise RequestError(
                "kv_cache_dtype", f"must be one of {', '.join(KV_CACHE_DTYPES)}, not {shown(dtype)}"
            )
        verification = self.verification
        if not isinstance(verification, str) or verification not in get_args(Verification):
            raise RequestError(
                "verification", f'must be "coupled" or "rejection", not {shown(verification)}'
            )
        threshold = number("confidence_threshold", self.confidence_threshold, 0.0, 1.0)
        object.__setattr__(self, "confidence_threshold", threshold)
