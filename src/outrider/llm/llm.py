"""``LLM``: load a model once, then generate, chat and stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard, Unpack, cast

from outrider.build.drafter import make_drafter
from outrider.build.target import Target, load_target
from outrider.config.engine import EngineConfig, EngineOptions
from outrider.config.model import ModelConfig
from outrider.engine.engine import Engine, page_budget
from outrider.engine.request import Request
from outrider.kernels.isolation import isolated
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
        progress: Progress = silent,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load a model and its drafter.

        Args:
            model: "smollm2", a checkpoint folder, a .gguf file, or a hub id.
            drafter: "auto", "none", "ngram", a checkpoint folder, or a hub id.
            device: "auto" or "cpu".
            threads: CPU threads; None takes every core.
            kernels: pins an implementation of the operators, "reference" among them.
            progress: told about loading.
            options: limits and choices of the engine: the fields of ``EngineConfig``, such as
                draft_length, max_model_len, max_num_seqs or verification.

        Raises:
            OutriderError: something cannot be loaded, does not fit, or is out of range.
        """
        config = EngineConfig(**options)
        table = select(device, threads, kernels)
        self._bind(
            load_target(model, table, config.max_model_len, progress), drafter, config, progress
        )

    @isolated()
    def _bind(self, target: Target, drafter: str, config: EngineConfig, progress: Progress) -> None:
        self._target = target
        self._config = config
        self._drafter = drafter
        made = make_drafter(drafter, target, page_budget(target, config), progress)
        self.engine = Engine(target, made, config)

    def variant(self, drafter: str | None = None, **options: Unpack[EngineOptions]) -> LLM:
        """Return another engine over the same loaded weights.

        Args:
            drafter: as in the constructor; None keeps what this one was given.
            options: fields of ``EngineConfig`` to change.
        """
        twin = LLM.__new__(LLM)
        config = replace(self._config, **options)
        twin._bind(self._target, self._drafter if drafter is None else drafter, config, silent)
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
        talk = _is_conversation(prompt)
        request = self._chat(cast("Conversation", prompt)) if talk else self._raw(_single(prompt))
        return Stream(self.engine, replace(request, params=params or SamplingParams()))

    @isolated()
    def _raw(self, prompt: Prompt) -> Request:
        if isinstance(prompt, str):
            return Request(self.tokenizer.encode(prompt, add_special=True), prompt=prompt)
        return Request(prompt)

    @isolated()
    def _chat(self, messages: Conversation) -> Request:
        return Request(self.tokenizer.encode_chat(messages))

    def _run(
        self,
        requests: Sequence[Request],
        params: SamplingParams | Sequence[SamplingParams] | None,
        progress: Progress,
    ) -> list[RequestOutput]:
        shared = SamplingParams() if params is None else params
        each = [shared] * len(requests) if isinstance(shared, SamplingParams) else list(shared)
        if not all(isinstance(one, SamplingParams) for one in each):
            raise RequestError("params", "must be SamplingParams, one for all or one per prompt")
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
        self._sent = 0
        self._id = engine.add(request)

    def __next__(self) -> str:
        # The text is read from the request, not from the rounds this stream happens to run: other
        # streams and calls of the same engine advance it too.
        while self.output is None:
            text = self._engine.text(self._id)
            if len(text) > self._sent:
                piece, self._sent = text[self._sent :], len(text)
                return piece
            if self._engine.is_finished(self._id):
                self.close()
            else:
                self._engine.step()
        raise StopIteration

    def close(self) -> None:
        """Cancel the request if it still runs, and keep what it has produced."""
        if self.output is None:
            self.output = self._engine.take(self._id)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many, as a list; a flat list of integers is one prompt.

    Raises:
        RequestError: something in it is neither text nor a list of token ids.
    """
    if isinstance(prompts, str) or _is_tokens(prompts):
        return [prompts]
    many = list(prompts) if isinstance(prompts, list | tuple) else [prompts]
    return [_single(prompt) for prompt in many]


def _single(prompt: object) -> Prompt:
    """One raw prompt.

    Raises:
        RequestError: it is something else, such as several prompts.
    """
    if not isinstance(prompt, str) and not _is_tokens(prompt) and prompt != []:
        raise RequestError("prompt", f"must be text or a list of token ids, not {prompt!r:.60}")
    return cast("Prompt", prompt)


def _is_tokens(value: object) -> TypeGuard[Sequence[int]]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        return False
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _is_conversation(value: object) -> TypeGuard[Conversation]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        return False
    return all(isinstance(item, Mapping) for item in value)


def _conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """One conversation or many, as a list.

    Raises:
        RequestError: something in it is not a list of messages.
    """
    if _is_conversation(messages):
        return [messages]
    many = list(messages) if isinstance(messages, Sequence) else [messages]
    for one in many:
        if not _is_conversation(one):
            raise RequestError(
                "messages", f'must be lists of {{"role", "content"}} messages, not {one!r:.60}'
            )
    return many  # type: ignore[return-value]
