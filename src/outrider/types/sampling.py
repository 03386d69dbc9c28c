"""Sampling parameters of a request. Each is applied exactly or refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.types.errors import RequestError

MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1
#: Below this, logits over the temperature leave no room for noise in float32.
MIN_TEMPERATURE = 1e-3


def _number(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    """Refuse ``value`` unless it is a finite number in [low, high] (or (low, high])."""
    bracket = "(" if open_low else "["
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RequestError(name, f"must be a number in {bracket}{low:g}, {high:g}], not {value!r}")
    if not low <= value <= high or (open_low and value == low):
        raise RequestError(name, f"must be in {bracket}{low:g}, {high:g}], not {value!r}")


def _integer(name: str, value: object, low: int, high: int) -> None:
    """Refuse ``value`` unless it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(name, f"must be an integer, not {value!r}")
    if not low <= value <= high:
        raise RequestError(name, f"must be in [{low}, {high}], not {value}")


def _strings(name: str, value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Normalise a stop list; an empty string would stop before the first token."""
    if value is not None and not isinstance(value, Sequence):
        raise RequestError(name, f"must be a string or a list of strings, not {value!r}")
    strings = (value,) if isinstance(value, str) else tuple(value or ())
    if not all(isinstance(item, str) and item for item in strings):
        raise RequestError(name, f"must be non-empty strings, not {value!r}")
    return strings


@dataclass(frozen=True)
class SamplingParams:
    """What a request asks of the sampler. Names and meanings follow vLLM.

    Attributes:
        n: how many completions of the same prompt; completion i draws with ``seed + i``.
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_p: keep the smallest set of tokens whose probability reaches this mass.
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        min_p: drop tokens less likely than ``min_p`` times the most likely one.
        seed: keys the noise of every draw; None takes a fresh one, which is reported back.
        stop: strings that end the output, found anywhere in its text. The one whose last character
            comes first counts; of those that end there, the longest.
        stop_token_ids: tokens that end the output, besides the model's own.
        max_tokens: most tokens to emit; None fills the context.
        min_tokens: least tokens of an output. End tokens are not sampled before there are that
            many. A stop string counts if the token that completes it is at least the
            ``min_tokens``-th, wherever the string begins (vLLM wants it one token later).
        ignore_eos: the model's own end tokens do not end the output.
        presence_penalty: subtracted once from the logit of every token already emitted.
        frequency_penalty: subtracted per earlier emission of the token.
        repetition_penalty: divides positive and multiplies negative logits of tokens in the prompt
            or the output.
        logit_bias: token id to a value added to its logit.
        logprobs: how many of the most likely tokens to report per token; None reports none.
        skip_special_tokens: leave special tokens out of the text.
        include_stop_str_in_output: keep the stop string at the end of the text; ``token_ids`` hold
            the tokens that spell it in any case.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        _integer("n", self.n, 1, 128)
        _number("temperature", self.temperature, 0.0, 100.0)
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise RequestError(
                "temperature", f"must be 0 or at least {MIN_TEMPERATURE:g}, not {self.temperature}"
            )
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _integer("top_k", self.top_k, -1, 2**31 - 1)
        _number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _integer("seed", self.seed, 0, MAX_SEED)
        if self.max_tokens is not None:
            _integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _integer("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                "min_tokens", f"must be at most max_tokens {self.max_tokens}, not {self.min_tokens}"
            )
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 1e-3, 100.0)
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            if not isinstance(self.__dict__[name], bool):
                raise RequestError(name, f"must be true or false, not {self.__dict__[name]!r}")
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        object.__setattr__(self, "stop", _strings("stop", self.stop))
        self._normalise_token_ids()

    def _normalise_token_ids(self) -> None:
        if self.stop_token_ids is not None and not isinstance(self.stop_token_ids, Sequence):
            raise RequestError("stop_token_ids", f"must be a list, not {self.stop_token_ids!r}")
        ids = tuple(self.stop_token_ids or ())
        for token in ids:
            _integer("stop_token_ids", token, 0, 2**31 - 1)
        object.__setattr__(self, "stop_token_ids", ids)
        bias: dict[int, float] = {}
        if not isinstance(self.logit_bias, Mapping | None):
            raise RequestError("logit_bias", f"must map tokens to values, not {self.logit_bias!r}")
        for token, value in (self.logit_bias or {}).items():
            _integer("logit_bias", token, 0, 2**31 - 1)
            _number("logit_bias", value, -100.0, 100.0)
            bias[token] = float(value)
        object.__setattr__(self, "logit_bias", bias)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple, empty if there are none."""
        return _strings("stop", self.stop)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The extra stop tokens as a tuple, empty if there are none."""
        return tuple(self.stop_token_ids or ())

    @property
    def greedy(self) -> bool:
        """Whether every token is the most likely one (ties go to the lowest id)."""
        return self.temperature == 0.0

    @property
    def shapes_logits(self) -> bool:
        """Whether logits are changed before the choice, so that a bare argmax is not enough."""
        return bool(
            self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1.0
            or self.logit_bias
            or self.min_tokens
        )

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids that the model does not have."""
        for name, ids in (("stop_token_ids", self.stop_ids), ("logit_bias", self.logit_bias)):
            for token in ids:
                if token >= vocab_size:
                    raise RequestError(
                        name, f"token {token} is outside the vocabulary of {vocab_size}"
                    )
