"""Sampling parameters of a request. Each is applied exactly or refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.types.errors import RequestError
from outrider.types.frozen import FrozenDict
from outrider.types.lines import shown
from outrider.types.names import Parameters
from outrider.types.numbers import boolean, integer, number
from outrider.types.synonyms import SAMPLING

MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1
#: Below this, logits over the temperature leave no room for noise in float32.
MIN_TEMPERATURE = 1e-3
#: Largest token id and largest count of tokens.
MAX_TOKENS = 2**31 - 1


def _strings(name: str, value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Normalise a stop list; an empty string would stop before the first token."""
    if value is not None and not isinstance(value, Sequence):
        raise RequestError(name, f"must be a string or a list of strings, not {shown(value)}")
    strings = (value,) if isinstance(value, str) else tuple(value or ())
    if not all(isinstance(item, str) and item for item in strings):
        raise RequestError(name, f"must be non-empty strings, not {shown(value)}")
    try:
        "".join(strings).encode()
    except UnicodeEncodeError:  # the halves of surrogates; no text of tokens holds any
        wanted = "must be valid Unicode text (UTF-8)"
        raise RequestError(name, f"{wanted}, not {shown(value)}") from None
    return strings


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    """Normalise a list of tokens, which may be an array of integers."""
    if value is None:
        return ()
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise RequestError(name, f"must be a list of tokens, not {shown(value)}")
    try:
        ids = tuple(value)
    except TypeError:  # an array without dimensions
        raise RequestError(name, f"must be a list of tokens, not {shown(value)}") from None
    return tuple(integer(name, token, 0, MAX_TOKENS) for token in ids)


@dataclass(frozen=True)
class SamplingParams(Parameters):
    """What a request asks of the sampler. Names and meanings follow vLLM.

    Defaults are vLLM's but for two: ``max_tokens`` is None here and 16 there, and an omitted
    ``seed`` is a fresh one for every request here. A model's ``generation_config.json`` changes no
    default, as with vLLM's ``generation_config="vllm"``.

    Numbers of other libraries (numpy's) become Python's, lists and dicts are copied. A name that
    does not exist is refused, with the one that is meant.

    Attributes:
        n: how many completions of the same prompt; completion i draws with ``seed + i``.
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_p: keep the smallest set of tokens whose probability reaches this mass.
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        min_p: drop tokens less likely than ``min_p`` times the most likely one.
        seed: keys the noise of every draw; None takes a fresh one, which is reported back.
        stop: strings that end the output, found anywhere in its text. The one whose last character
            comes first counts; of those that end there, the longest.
        stop_token_ids: tokens that end the output, besides the model's own. The text of one that
            did is left out; see ``include_stop_str_in_output``.
        max_tokens: most tokens to emit; None, the default, fills the context (vLLM: 16).
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
        include_stop_str_in_output: keep what ended the output at the end of the text: the stop
            string, or the text of the end token, which a special token has if
            ``skip_special_tokens`` is false. ``token_ids`` hold its tokens in any case.
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

    WHAT = "sampling parameter"
    HINTS = SAMPLING

    def __post_init__(self) -> None:
        """Check every field, and store it in its one form.

        Raises:
            RequestError: a value cannot be served; it names the parameter.
        """
        self._set("n", integer("n", self.n, 1, 128))
        self._set("temperature", number("temperature", self.temperature, 0.0, 100.0))
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise RequestError(
                "temperature", f"must be 0 or at least {MIN_TEMPERATURE:g}, not {self.temperature}"
            )
        self._set("top_p", number("top_p", self.top_p, 0.0, 1.0, open_low=True))
        self._set("top_k", integer("top_k", self.top_k, -1, MAX_TOKENS))
        self._set("min_p", number("min_p", self.min_p, 0.0, 1.0))
        for name, low, high in (
            ("seed", 0, MAX_SEED),
            ("max_tokens", 1, MAX_TOKENS),
            ("logprobs", 0, MAX_LOGPROBS),
        ):
            value = self.__dict__[name]
            self._set(name, None if value is None else integer(name, value, low, high))
        self._set("min_tokens", integer("min_tokens", self.min_tokens, 0, MAX_TOKENS))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                "min_tokens", f"must be at most max_tokens {self.max_tokens}, not {self.min_tokens}"
            )
        for name in ("presence_penalty", "frequency_penalty"):
            self._set(name, number(name, self.__dict__[name], -2.0, 2.0))
        penalty = number("repetition_penalty", self.repetition_penalty, 1e-3, 100.0)
        self._set("repetition_penalty", penalty)
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            boolean(name, self.__dict__[name])
        self._set("stop", _strings("stop", self.stop))
        self._set("stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        self._set("logit_bias", self._bias())

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _bias(self) -> FrozenDict[int, float]:
        if not isinstance(self.logit_bias, Mapping | None):
            raise RequestError(
                "logit_bias", f"must map tokens to values, not {shown(self.logit_bias)}"
            )
        return FrozenDict(
            {
                integer("logit_bias", token, 0, MAX_TOKENS): number(
                    "logit_bias", value, -100.0, 100.0
                )
                for token, value in (self.logit_bias or {}).items()
            }
        )

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
    def processes_logits(self) -> bool:
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
