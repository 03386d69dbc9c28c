"""``LLM``: load a model once, then generate, chat and stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from outrider.build.drafter import make_drafter
from outrider.build.target import Target, load_target
from outrider.config.engine import EngineConfig, Verification
from outrider.config.model import ModelConfig
from outrider.engine.engine import Engine, page_budget
from outrider.engine.request import Request
from outrider.kernels.select import select
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput
from outrider.types.progress import Progress, silent
from outrider.types.sampling import SamplingParams

#: A raw prompt: text, or tokens as they are.
Prompt = str | Sequence[int]
#: Messages in order, each {"role": ..., "content": ...}.
Conversation = Sequence[Mapping[str, object]]


class LLM:
    """One loaded model with one drafter.

    Example:
        >>> llm = LLM("smollm2", drafter="ngram")
        >>> out = llm.generate("Once upon a time", SamplingParams(max_tokens=32, temperature=0))
        >>> out[0].outputs[0].text
    """

    def __init__(
        self,
        model: str = "smollm2",
        *,
        drafter: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        kernels: str | None = None,
        draft_length: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
        verification: Verification = "coupled",
        confidence_threshold: float = 0.0,
        progress: Progress = silent,
    ) -> None:
        """Load a model and its drafter.

        Args:
            model: "smollm2", a checkpoint folder, a .gguf file, or a hub id.
            drafter: "auto", "none", "ngram", a checkpoint folder, or a hub id.
            device: "auto" or "cpu".
            threads: CPU threads; None takes every core.
            kernels: pins an implementation of the operators, "reference" among them.
            draft_length: tokens to draft per round; None takes the drafter's own.
            max_model_len: most tokens of prompt and output; None takes the model's own.
            max_num_seqs: requests that share a round.
            max_num_batched_tokens: prompt tokens fed per round.
            verification: "coupled" keeps sampled outputs token-identical to plain decoding;
                "rejection" keeps their distribution.
            confidence_threshold: cuts drafts before the first token with less confidence.
            progress: told about loading.

        Raises:
            OutriderError: something cannot be loaded, does not fit, or is out of range.
        """
        config = EngineConfig(
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            draft_length=draft_length,
            verification=verification,
            confidence_threshold=confidence_threshold,
        )
        table = select(device, threads, kernels)
        self._bind(load_target(model, table, max_model_len, progress), drafter, config, progress)

    def _bind(self, target: Target, drafter: str, config: EngineConfig, progress: Progress) -> None:
        self._target = target
        self._config = config
        self._drafter = drafter
        made = make_drafter(drafter, target, page_budget(target, config), progress)
        self.engine = Engine(target, made, config)

    def variant(
        self,
        *,
        drafter: str | None = None,
        draft_length: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        verification: Verification | None = None,
    ) -> LLM:
        """Return another engine over the same loaded weights; None keeps what this one has."""
        changes: dict[str, Any] = {
            "draft_length": draft_length,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "verification": verification,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        twin = LLM.__new__(LLM)
        twin._bind(self._target, drafter or self._drafter, replace(self._config, **given), silent)
        return twin

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._target.tokenizer

    @property
    def model_config(self) -> ModelConfig:
        """The model's shape."""
        return self._target.config

    @property
    def kernels_name(self) -> str:
        """The operators' implementation and code path."""
        return self._target.model.kernels.name

    @property
    def drafter_name(self) -> str:
        """The drafter's name, "none" without one."""
        return self.engine.drafter_name

    # -- offline generation ----------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: Progress = silent,
    ) -> list[RequestOutput]:
        """Complete raw prompts, batched.

        Args:
            prompts: one prompt or many; text is fed as it is, without a chat template.
            params: one for all, or one per prompt.
            progress: told as requests finish.

        Raises:
            RequestError: a prompt or a parameter cannot be served. Nothing is generated then.
        """
        return self._run([self._raw(prompt) for prompt in _listed(prompts)], params, progress)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: Progress = silent,
    ) -> list[RequestOutput]:
        """Answer conversations, batched; each is rendered through the model's chat template.

        Args:
            messages: one conversation or many: {"role": ..., "content": ...} in order.
            params: one for all, or one per conversation.
            progress: told as requests finish.

        Raises:
            RequestError: a conversation or a parameter cannot be served.
        """
        return self._run([self._chat(one) for one in _conversations(messages)], params, progress)

    def stream(self, prompt: Prompt | Conversation, params: SamplingParams | None = None) -> Stream:
        """Complete one raw prompt (text or tokens) or answer one conversation, piece by piece.

        Raises:
            RequestError: the prompt or a parameter cannot be served.
        """
        request = self._chat(prompt) if _is_conversation(prompt) else self._raw(prompt)  # type: ignore[arg-type]
        return Stream(self.engine, replace(request, params=params or SamplingParams()))

    def _raw(self, prompt: Prompt) -> Request:
        if isinstance(prompt, str):
            return Request(self.tokenizer.encode(prompt, add_special=True), prompt=prompt)
        return Request(prompt)

    def _chat(self, messages: Conversation) -> Request:
        return Request(self.tokenizer.encode_chat(messages))

    def _run(
        self,
        requests: Sequence[Request],
        params: SamplingParams | Sequence[SamplingParams] | None,
        progress: Progress,
    ) -> list[RequestOutput]:
        shared = params or SamplingParams()
        each = [shared] * len(requests) if isinstance(shared, SamplingParams) else list(shared)
        if len(each) != len(requests):
            raise RequestError("params", f"{len(each)} of them for {len(requests)} prompts")
        ids: list[str] = []
        try:
            for request, one in zip(requests, each, strict=True):
                ids.append(self.engine.add(replace(request, params=one)))
            unfinished = set(ids)
            while unfinished:
                self.engine.step()
                unfinished -= {i for i in unfinished if self.engine.is_finished(i)}
                progress("Generating", len(ids) - len(unfinished), len(ids))
            return [self.engine.output(request_id) for request_id in ids]
        finally:
            for request_id in ids:
                self.engine.abort(request_id)


class Stream(Iterator[str]):
    """Text pieces of one completion as rounds commit. Closing it cancels the request.

    Attributes:
        output: the request's output once the stream is exhausted or closed, else None.
    """

    def __init__(self, engine: Engine, request: Request) -> None:
        if request.params.n != 1:
            raise RequestError("n", f"a stream carries one completion, not {request.params.n}")
        self.output: RequestOutput | None = None
        self._engine = engine
        self._id = engine.add(request)

    def __next__(self) -> str:
        while self.output is None:
            if self._engine.is_finished(self._id):
                self.close()
                break
            pieces = [delta.text for delta in self._engine.step() if delta.request_id == self._id]
            text = "".join(pieces)
            if text:
                return text
        raise StopIteration

    def close(self) -> None:
        """Cancel the request if it still runs, and keep what it has produced."""
        if self.output is None:
            self.output = self._engine.take(self._id)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@overload
def _listed(prompts: str) -> list[Prompt]: ...
@overload
def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]: ...
def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many, as a list."""
    if isinstance(prompts, str):
        return [prompts]
    many = list(prompts)
    if many and all(isinstance(item, int) for item in many):
        return [many]  # type: ignore[list-item]
    return many  # type: ignore[return-value]


def _is_conversation(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], dict)


def _conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """One conversation or many, as a list."""
    if _is_conversation(messages):
        return [messages]  # type: ignore[list-item]
    return list(messages)  # type: ignore[arg-type]
