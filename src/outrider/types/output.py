"""What a request returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.types.telemetry import Telemetry

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True)
class TokenLogprob:
    """Log-probability of one emitted token under the target, before temperature and filters.

    Attributes:
        token_id: the emitted token.
        logprob: its natural-log probability; finite.
        rank: 1 for the most likely token.
        top: the most likely tokens with their log-probabilities, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class CompletionOutput:
    """One completion of a prompt. ``text``, ``token_ids`` and ``logprobs`` are cut together.

    Attributes:
        index: which of the n completions.
        text: the decoded output, without the stop string unless it was asked for. It continues the
            text of the prompt: a space before its first word is part of it.
        token_ids: the emitted tokens, the ending token included.
        finish_reason: "stop" for an end token or a stop string, "length" for a limit, "abort" for
            a cancelled request, "error" for one that failed, None while it runs.
        stop_reason: the stop string or the extra stop token that ended it.
        logprobs: one entry per token if they were asked for.
        seed: the seed that reproduces this completion.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None
    logprobs: list[TokenLogprob] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Timings:
    """Wall-clock seconds of one request.

    Attributes:
        queued_s: from arrival to the first pass that fed its rows.
        prefill_s: from there to the first emitted token.
        decode_s: from the first emitted token to the last.
    """

    queued_s: float
    prefill_s: float
    decode_s: float

    def tokens_per_s(self, completion_tokens: int) -> float:
        """Decode speed: tokens after the first over the decode time; 0.0 if there are none."""
        return (completion_tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True)
class Metrics:
    """Speed and drafting of one request; ``speculation`` sums over its n completions."""

    timings: Timings
    speculation: Telemetry
    drafter: str


@dataclass(frozen=True)
class RequestOutput:
    """Everything about one prompt's completions.

    Attributes:
        request_id: names the request.
        prompt: the text behind the prompt, if it was text.
        prompt_token_ids: the prompt.
        outputs: its completions as they stand.
        finished: whether all of them have ended.
        metrics: times and drafting.
        error: why the request failed, None if it did not; completions keep what was decided.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: Metrics
    error: Exception | None = None


@dataclass(frozen=True)
class Delta:
    """What one round added to one completion: a piece of text and the tokens behind it."""

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
