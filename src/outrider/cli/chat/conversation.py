"""A conversation with a model: its messages, what of them the model sees, and its last answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from outrider.cli.console import note, summary, write
from outrider.text.messages import Message, checked_messages
from outrider.types.errors import RequestError
from outrider.types.output import RequestOutput

if TYPE_CHECKING:
    from outrider.llm.llm import LLM
    from outrider.types.sampling import SamplingParams

#: Share of the context that is kept free for an answer, if so much may be written.
ANSWER_SHARE: Final = 4


@dataclass(frozen=True)
class Answer:
    """The newest answer, so that it can go on where it was cut.

    Attributes:
        prompt: tokens that it answered.
        tokens: its own.
        text: its text.
        seed: keys its noise, by position, so that going on is what a higher limit had given.
        cut: whether a limit ended it.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    seed: int
    cut: bool


@dataclass(frozen=True)
class State:
    """Everything that a turn changes, replaced as a whole when the turn is complete.

    Attributes:
        messages: the conversation, those out of sight included.
        hidden: how many of the oldest turns the model no longer sees.
        answer: the newest answer, None if there is none to go on with.
    """

    messages: tuple[Message, ...]
    hidden: int = 0
    answer: Answer | None = None


class Conversation:
    """Messages, and the model that answers them. A turn that fails leaves no trace.

    A turn begins with a user's message; what stands before the first one always stays in sight.
    """

    def __init__(self, llm: LLM, params: SamplingParams, system: str | None) -> None:
        """Begin a conversation.

        Raises:
            RequestError: the model has no chat template, or the template takes no system message.
        """
        self._llm = llm
        self._params = params
        self._state = State(())
        self._llm.tokenizer.render_chat([{"role": "user", "content": "Hello"}])
        if system:
            self.system = system

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, those that the model no longer sees included."""
        return self._state.messages

    @property
    def system(self) -> str:
        """The system message, "" for none."""
        first = self.messages[:1]
        return str(first[0]["content"]) if first and first[0]["role"] == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        """Set the system message; RequestError if the chat template takes none."""
        rest = self.messages[1:] if self.system else self.messages
        opening: tuple[Message, ...] = ({"role": "system", "content": text},) if text else ()
        self._take_over((*opening, *rest))

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._state = State(self.messages[:1] if self.system else ())

    def load(self, messages: Sequence[Message]) -> None:
        """Go on with other messages.

        Raises:
            RequestError: the chat template refuses them; the conversation is as it was.
        """
        self._take_over(tuple(checked_messages(messages)))

    def _take_over(self, messages: tuple[Message, ...]) -> None:
        asked = any(message["role"] == "user" for message in messages)
        question: Message = {"role": "user", "content": "Hello"}
        self._llm.tokenizer.render_chat(messages if asked else [*messages, question])
        self._state = State(messages)

    def undo(self) -> Message:
        """Forget the last turn; returns the message that began it."""
        begun = self._last_turn("undo")
        asked = self.messages[begun]
        self._state = State(self.messages[:begun])
        return asked

    def _last_turn(self, name: str) -> int:
        starts = turn_starts(self.messages)
        if not starts:
            raise RequestError(f"/{name}", "nothing was asked yet")
        return starts[-1]

    # -- turns -----------------------------------------------------------------------------------

    def ask(self, text: str) -> None:
        """Stream the answer to one message.

        Raises:
            RequestError: the message cannot be served.
        """
        self._answer((*self.messages, {"role": "user", "content": text}))

    def retry(self) -> None:
        """Answer the last message anew."""
        self._answer(self.messages[: self._last_turn("retry") + 1])

    def go_on(self) -> None:
        """Continue the last answer where a limit cut it.

        Raises:
            RequestError: there is nothing to go on with, or no room for it.
        """
        answer = self._state.answer
        if answer is None or not answer.cut:
            reason = "no answer was cut" if answer is None else "the last answer ended by itself"
            raise RequestError("/continue", reason)
        asked = self.messages[:-1]
        hidden = self._fit(asked, len(answer.tokens))
        prompt = answer.prompt
        if hidden != self._state.hidden:
            prompt = tuple(self._llm.tokenizer.encode_chat(visible(asked, hidden)))
        # Where older turns have gone out of sight, there is no answer with a higher limit.
        again = prompt == answer.prompt and self._looks_back()
        answer = replace(answer, prompt=prompt)
        longer, output = self._anew(answer) if again else self._further(answer)
        self._close(asked, hidden, longer, output)

    def _looks_back(self) -> bool:
        """Whether how an answer goes on depends on which tokens are its own."""
        p = self._params
        return bool(p.frequency_penalty or p.presence_penalty or p.stop_strings)

    def _further(self, answer: Answer) -> tuple[Answer, RequestOutput]:
        """Go on with what was written as a part of the prompt, which costs its prefill alone."""
        least = max(self._params.min_tokens - len(answer.tokens), 0)
        params = replace(self._params, seed=answer.seed, min_tokens=least)
        output = self._stream([*answer.prompt, *answer.tokens], params)
        tokens = (*answer.tokens, *output.outputs[0].token_ids)
        text = answer.text + output.outputs[0].text
        if answer.text.endswith("\ufffd"):
            # The cut went through a character, which is whole now.
            text = self._llm.tokenizer.decode(tokens, skip_special=self._params.skip_special_tokens)
        return replace(answer, tokens=tokens, text=text), output

    def _anew(self, answer: Answer) -> tuple[Answer, RequestOutput]:
        """Answer once more with a higher limit, and write what is new."""
        limit = self._params.max_tokens
        higher = None if limit is None else len(answer.tokens) + limit
        params = replace(self._params, seed=answer.seed, max_tokens=higher)
        output = self._stream(answer.prompt, params, len(answer.text.rstrip("\ufffd")))
        completion = output.outputs[0]
        longer = replace(answer, tokens=tuple(completion.token_ids), text=completion.text)
        return longer, output

    def _answer(self, messages: tuple[Message, ...]) -> None:
        hidden = self._fit(messages, 0)
        output = self._stream(visible(messages, hidden), self._params)
        completion = output.outputs[0]
        answer = Answer(
            tuple(output.prompt_token_ids),
            tuple(completion.token_ids),
            completion.text,
            completion.seed,
            cut=False,
        )
        self._close(messages, hidden, answer, output)

    def _close(
        self, messages: tuple[Message, ...], hidden: int, answer: Answer, output: RequestOutput
    ) -> None:
        """Report on an answer, and make its turn part of the conversation."""
        note(summary(output))
        cut = output.outputs[0].finish_reason == "length"
        if cut:
            note(self._reason(messages, hidden, answer))
        said: Message = {"role": "assistant", "content": answer.text}
        self._state = State((*messages, said), hidden, replace(answer, cut=cut))

    def _reason(self, messages: tuple[Message, ...], hidden: int, answer: Answer) -> str:
        """Say why an answer to ``messages`` was cut, and what will let it go on."""
        written = len(answer.tokens)
        if len(answer.prompt) + written < self._limit:
            return (
                f"Cut after {counted(written, 'token')}. /continue goes on; "
                "--max-tokens sets the limit."
            )
        _, count = self._place(messages, written, hidden)
        way_on = "/continue makes room" if count < self._limit else self._way_out()
        return f"Cut: the context of {self._limit} tokens is full. {way_on}."

    def _way_out(self) -> str:
        """What helps if a single turn fills the context."""
        longest = self._llm.model_config.max_position
        larger = f"; --max-model-len sets the context, at most {longest} tokens"
        return "/reset begins a new conversation" + (larger if self._limit < longest else "")

    def _stream(
        self, prompt: Sequence[Message] | Sequence[int], params: SamplingParams, known: int = 0
    ) -> RequestOutput:
        """Write an answer while it is decided, but for its first ``known`` characters."""
        with closing(self._llm.stream(prompt, params)) as stream:
            try:
                for piece in stream:
                    write(piece[known:])
                    known -= min(known, len(piece))
            finally:
                write("\n")
            if stream.output is None:
                raise RequestError("messages", "the answer was cancelled")
            return stream.output

    # -- the context -----------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return self._llm.engine.max_model_len

    def _fit(self, messages: tuple[Message, ...], written: int) -> int:
        """How many of the oldest turns must be out of sight, so that an answer has room.

        Args:
            messages: what is answered.
            written: tokens of the answer that exist already.

        Raises:
            RequestError: the newest turn alone does not fit.
        """
        limit = self._limit
        hidden, count = self._place(messages, written, self._state.hidden)
        if count >= limit:
            name, what, way_out = "messages", "this message", ""
            if written:
                name, what = "/continue", "what was written so far"
                way_out = f"; {self._way_out()}"
            raise RequestError(
                name,
                f"{what} takes {count} tokens with all that must stand before it, and the context "
                f"holds {limit}{way_out}",
            )
        if hidden > self._state.hidden:
            note(
                f"The context of {limit} tokens is full; the model no longer sees the oldest "
                f"{counted(hidden, 'turn')}."
            )
        return hidden

    def _place(self, messages: tuple[Message, ...], written: int, hidden: int) -> tuple[int, int]:
        """Put as few turns out of sight as give an answer room, or all but the newest one.

        Args:
            messages: what is answered.
            written: tokens of the answer that exist already.
            hidden: turns that are out of sight already.

        Returns:
            How many of the oldest turns are out of sight, and the tokens of what is in sight.
        """
        limit = self._limit
        wanted = min(self._params.max_tokens or limit, max(limit // ANSWER_SHARE, 1))
        turns = len(turn_starts(messages))
        placed = 0, 0
        for fewest in range(min(hidden, turns - 1), turns):
            count = len(self._llm.tokenizer.encode_chat(visible(messages, fewest))) + written
            placed = fewest, count
            if count + wanted <= limit:
                break
        return placed


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where the turns begin: at every message of a user."""
    return [index for index, message in enumerate(messages) if message["role"] == "user"]


def visible(messages: Sequence[Message], hidden: int) -> list[Message]:
    """The messages without the oldest ``hidden`` turns; what stands before the first one stays."""
    starts = turn_starts(messages)
    return [*messages[: starts[0]], *messages[starts[hidden] :]]


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
