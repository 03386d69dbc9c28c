"""A request: a prompt, its parameters, and the completions that grow from it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.types.sampling import MAX_SEED, SamplingParams


@dataclass(frozen=True)
class Request:
    """What a user asks of the engine.

    Attributes:
        prompt_token_ids: the prompt, at least one token.
        params: its sampling parameters.
        prompt: the text behind it, returned with the output.
        request_id: names it in outputs; None makes one up.
    """

    prompt_token_ids: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    prompt: str | None = None
    request_id: str | None = None


def seed_of(params: SamplingParams, index: int) -> int:
    """Seed of completion ``index``: the request's own plus the index, or a fresh one."""
    if params.seed is None:
        return secrets.randbelow(MAX_SEED)
    return (params.seed + index) & MAX_SEED
