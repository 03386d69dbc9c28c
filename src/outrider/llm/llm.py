"""``LLM``: load a model once, then generate, chat and stream."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Self, SupportsIndex, Unpack

from outrider.assembly.engine import assemble
from outrider.assembly.target import make_target
from outrider.config.engine import EngineConfig, EngineOptions
from outrider.config.kv import KvDtype
from outrider.config.model import ModelConfig
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.kernels.isolation import isolated
from outrider.llm.arguments import (
    check_call,
    check_count,
    check_options,
    check_progress,
    check_variant,
    params_of,
    place,
    text,
    thread_count,
)
from outrider.llm.inputs import (
    MISSING,
    Conversation,
    Missing,
    Prompt,
    conversations_of,
    is_conversation,
    prompt_of,
    prompts_of,
)
from outrider.llm.owner import EngineOwner
from outrider.models.target import Target
from outrider.text.messages import checked_messages
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput
from outrider.types.progress import Progress, silent
from outrider.types.sampling import SamplingParams

_LOG: Final = logging.getLogger("outrider")


class LLM:
    """One loaded model with one drafter.

    Calls may come from several threads: they are served together, each with the tokens that it
    would have alone. ``with LLM(...) as llm`` gives memory back at the end.

    Example:
        >>> llm = LLM("smollm2", drafter="ngram")
        >>> out = llm.generate("Once upon a time", SamplingParams(max_tokens=32, temperature=0))
        >>> out[0].outputs[0].text
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "smollm2",
        *unnamed: object,
        drafter: str | os.PathLike[str] = "auto",
        device: str = "auto",
        threads: int | None = None,
        kernels: str | None = None,
        progress: Progress = silent,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load a model and its drafter.

        Sessions get as much of the model's context as the KV caches have room for; one line says
        so if that is not all of it.

        Args:
            model: "smollm2", a checkpoint folder, a .gguf file, or a hub id.
            *unnamed: refused; everything else goes by name.
            drafter: "auto", "none", "ngram", a shipped one by name, a checkpoint folder, or a hub
                id.
            device: "auto" or "cpu".
            threads: CPU threads, at least 1; None takes every core.
            kernels: pins an implementation of the operators, "reference" among them.
            progress: told about loading.
            options: limits and choices of the engine: the fields of ``EngineConfig``, such as
                draft_length, kv_cache_dtype, max_model_len, max_num_seqs or verification.

        Raises:
            RequestError: an option is unknown, of a wrong type or out of range; it names the
                option, and what other engines call by that name.
            OutriderError: something cannot be loaded or does not fit.
        """
        check_count(unnamed, ("model",), "LLM")
        check_options(options)
        config = EngineConfig(**options)
        spec = place("model", model, '"smollm2"')
        drafts = place("drafter", drafter, '"auto" or "none"')
        path = None if kernels is None else text("kernels", kernels, '"reference"')
        check_progress(progress)
        target = make_target(
            spec,
            device=text("device", device, '"cpu"'),
            threads=thread_count(threads),
            kernels=path,
            max_model_len=config.max_model_len,
            progress=progress,
        )
        self._bind(target, drafts, config, progress)
        if self._note is not None:
            _LOG.warning("%s", self._note)

    @isolated()
    def _bind(self, target: Target, drafter: str, config: EngineConfig, progress: Progress) -> None:
        self._config = config
        self._drafter = drafter
        parts = assemble(target, drafter, config, progress)
        engine = parts.engine()
        self._engine: Engine | None = engine
        self._owner = EngineOwner(engine)
        self._target = parts.target
        self._note = parts.budget.note

    def variant(
        self,
        drafter: str | os.PathLike[str] | None = None,
        *unnamed: object,
        **options: Unpack[EngineOptions],
    ) -> LLM:
        """Return another engine over the same loaded weights.

        Args:
            drafter: as in the constructor; None keeps what this one was given.
            *unnamed: refused; everything else goes by name.
            options: fields of ``EngineConfig`` to change; None stands for a default again.

        Raises:
            OutriderError: as in the constructor.
        """
        check_count(unnamed, ("drafter",), "LLM.variant")
        check_variant(options)
        self._owner.desk.check()
        config = replace(self._config, **options)
        drafts = self._drafter if drafter is None else place("drafter", drafter, '"none"')
        twin = LLM.__new__(LLM)
        twin._bind(self._target, drafts, config, silent)
        if twin._note not in (None, self._note):
            _LOG.warning("%s", twin._note)
        return twin

    def close(self) -> None:
        """Cancel what still runs and give the memory of the engine back.

        Variants, and the weights if they share them, are not touched. Calling it again does
        nothing; any other call is refused from then on.
        """
        self._owner.close()
        self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            RequestError: always; it says what to do instead.
        """
        raise RequestError(
            "llm",
            "cannot be pickled or copied, as its engine runs in this process; make an LLM where it "
            "is needed, or another engine over the same weights with llm.variant()",
        )

    def __repr__(self) -> str:
        if self._engine is None:
            return f"<LLM {self._target.source}, closed>"
        return (
            f"<LLM {self._target.source}, drafter {self.drafter_name}, kernels "
            f"{self.kernels_name}, context {self._engine.max_model_len}>"
        )

    @property
    def engine(self) -> Engine:
        """The engine, for those who run rounds themselves.

        Raises:
            RequestError: it was closed.
        """
        if self._engine is None:
            raise RequestError("llm", "has been closed; make a new LLM")
        return self._engine

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
    def kv_cache_dtype(self) -> KvDtype:
        """How keys and values are kept; with ``kernels_name`` it is the numerics profile."""
        return self.engine.kv_cache_dtype

    @property
    def drafter_name(self) -> str:
        """The drafter's name, "none" without one."""
        return self.engine.drafter_name

    # -- offline generation ----------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt] | Missing = MISSING,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: Progress = silent,
        *unnamed: object,
        **unknown: object,
    ) -> list[RequestOutput]:
        """Complete raw prompts, batched.

        Args:
            prompts: one prompt or many; text is fed as it is, without a chat template.
            params: one for all, or one per prompt.
            progress: told as requests finish.
            *unnamed: refused by number.
            **unknown: refused by name.

        Raises:
            RequestError: a prompt or a parameter cannot be served, or there is no such argument.
                Nothing is generated then.
            NumericsError: the model's output for one of them is not finite. It is raised when all
                have ended, and its ``outputs`` are what each of them has.
        """
        check_call("generate", ("prompts", "params", "progress"), unnamed, unknown)
        return self._run(
            "prompts", [self._raw(prompt) for prompt in prompts_of(prompts)], params, progress
        )

    def chat(
        self,
        messages: Conversation | Sequence[Conversation] | Missing = MISSING,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        progress: Progress = silent,
        *unnamed: object,
        **unknown: object,
    ) -> list[RequestOutput]:
        """Answer conversations, batched; each is rendered through the model's chat template.

        Args:
            messages: one conversation or many: {"role": ..., "content": ...} in order. Content is
                text or a list of text parts, which are joined by line breaks; beside an
                assistant's tool calls it may be missing.
            params: one for all, or one per conversation.
            progress: told as requests finish.
            *unnamed: refused by number.
            **unknown: refused by name.

        Raises:
            RequestError: a conversation or a parameter cannot be served, or there is no such
                argument. Nothing is generated then.
            NumericsError: the model's output for one of them is not finite. It is raised when all
                have ended, and its ``outputs`` are what each of them has.
        """
        check_call("chat", ("messages", "params", "progress"), unnamed, unknown)
        return self._run(
            "messages", [self._chat(one) for one in conversations_of(messages)], params, progress
        )

    def stream(
        self,
        prompt: Prompt | Conversation | Missing = MISSING,
        params: SamplingParams | None = None,
        *unnamed: object,
        **unknown: object,
    ) -> Stream:
        """Complete one raw prompt (text or tokens) or answer one conversation, piece by piece.

        Raises:
            RequestError: the prompt or a parameter cannot be served, or there is no such argument.
        """
        check_call("stream", ("prompt", "params"), unnamed, unknown)
        (one,) = params_of(params, 1)
        talk = is_conversation(prompt)
        request = self._chat(checked_messages(prompt)) if talk else self._raw(prompt_of(prompt))
        return Stream(self._owner, replace(request, params=one))

    @isolated()
    def _raw(self, prompt: Prompt) -> Request:
        if isinstance(prompt, str):
            return Request(self.tokenizer.encode(prompt, add_special=True), prompt=prompt)
        return Request([int(token) for token in prompt])

    @isolated()
    def _chat(self, messages: Conversation) -> Request:
        return Request(self.tokenizer.encode_chat(messages))

    def _check_prompts(
        self, requests: Sequence[Request], each: Sequence[SamplingParams], name: str
    ) -> None:
        """Refuse a batch by the place of the prompt that cannot be served."""
        for index, (request, params) in enumerate(zip(requests, each, strict=True)):
            try:
                self.engine.check(request.prompt_token_ids, params)
            except RequestError as error:
                if len(requests) == 1 or error.parameter != "prompt":
                    raise
                detail = str(error).removeprefix("prompt: ")
                raise RequestError(f"{name}[{index}]", detail) from None

    def _run(
        self,
        name: str,
        requests: Sequence[Request],
        params: SamplingParams | Sequence[SamplingParams] | None,
        progress: Progress,
    ) -> list[RequestOutput]:
        each = params_of(params, len(requests))
        check_progress(progress)
        self._owner.desk.check()
        self._check_prompts(requests, each, name)
        tickets = self._owner.submit(
            [replace(request, params=one) for request, one in zip(requests, each, strict=True)]
        )
        try:
            return self._owner.outputs(
                tickets, lambda done: progress("Generating", done, len(tickets))
            )
        finally:
            for ticket in tickets:
                ticket.abandon()


class Stream(Iterator[str]):
    """Text pieces of one completion as rounds commit.

    The request is cancelled by closing the stream, by leaving its ``with`` block, and by dropping
    it: breaking out of ``for piece in llm.stream(...)`` is enough.

    Attributes:
        output: the request's output once the stream is exhausted or closed, else None.
    """

    def __init__(self, owner: EngineOwner, request: Request) -> None:
        if request.params.n != 1:
            raise RequestError("n", f"a stream carries one completion, not {request.params.n}")
        self.output: RequestOutput | None = None
        self._sent = 0
        self._reading = threading.Lock()
        (self._ticket,) = owner.submit([request])

    def __next__(self) -> str:
        with self._reading:  # several readers share the pieces
            return self._next()

    def _next(self) -> str:
        if self.output is not None:
            raise StopIteration
        try:
            piece = self._ticket.text_after(self._sent)
        except Exception:  # the request failed, or nobody can serve it any more
            self._keep()
            raise
        if not piece:
            self.close()
            raise StopIteration
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        """Cancel the request if it still runs, and keep what it has produced."""
        if self.output is None:
            self.output = self._ticket.close()

    def _keep(self) -> None:
        """Keep what a request that failed has produced."""
        self.output = self._ticket.entry.output

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
