"""A session's public stream: tokens, text, and the rules that end it, judged token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.text.detokenizer import Detokenizer
from outrider.text.stops import StopStrings
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import InvariantError
from outrider.types.output import FinishReason
from outrider.types.sampling import SamplingParams
from outrider.verify.history import TokenHistory


@dataclass(frozen=True)
class StreamLimits:
    """What ends a stream besides its parameters.

    Attributes:
        eos_ids: the model's end tokens.
        max_model_len: most tokens of prompt and output together.
    """

    eos_ids: frozenset[int]
    max_model_len: int


class TokenStream:
    """Prompt and output tokens of one session, and how much of them the caches hold.

    Invariant at every round boundary: the caches hold exactly ``tokens[:committed]``, and the last
    token, the tip, is decided but not yet fed. Ending rules are judged as each token is emitted,
    before its round commits, so nothing past the end is ever committed.

    Attributes:
        tokens: prompt and output.
        prompt_length: how many of them are the prompt.
        committed: how many of them the caches hold.
        params: its sampling parameters.
        history: what penalties know.
        finish_reason: why the stream ended, None while it goes on.
        stop_reason: the stop string or extra stop token that ended it.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        tokenizer: Tokenizer,
        limits: StreamLimits,
    ) -> None:
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.committed = 0
        self.params = params
        self._tokenizer = tokenizer
        self._eos_ids = frozenset() if params.ignore_eos else limits.eos_ids
        self._end = min(
            limits.max_model_len,
            self.prompt_length + (params.max_tokens or limits.max_model_len),
        )
        self._unread = 0
        self._open()

    def _open(self) -> None:
        """Begin an empty output after the prompt, which is all that ``tokens`` holds."""
        params = self.params
        self.history = TokenHistory(self.tokens)
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self._detokenizer = Detokenizer(self._tokenizer, params.skip_special_tokens, self.tokens)
        self._stops = StopStrings(params.stop_strings, params.include_stop_str_in_output)
        self._keeps_end = params.include_stop_str_in_output
        self._pieces: list[str] = []

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end this stream."""
        return self._eos_ids | frozenset(self.params.stop_ids)

    @property
    def output(self) -> list[int]:
        """The emitted tokens."""
        return self.tokens[self.prompt_length :]

    @property
    def text(self) -> str:
        """The text released so far."""
        return "".join(self._pieces)

    @property
    def tip(self) -> int:
        """The last decided token."""
        return self.tokens[-1]

    @property
    def pending(self) -> int:
        """Decided tokens that the caches do not hold yet; 1 while decoding."""
        return len(self.tokens) - self.committed

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return 0 if self.finish_reason else self._end - len(self.tokens)

    def emit(self, token: int) -> None:
        """Append the target's next token and judge whether it ends the stream.

        The earliest rule wins. At one token a stop string comes first, which an end token can
        complete if its text is kept; then an end token, then the length limits.
        """
        if self.finish_reason is not None:
            raise InvariantError("the stream has ended")
        self.tokens.append(token)
        self.history.emit(token)
        if token in self._eos_ids:
            self._finish("stop", None)
        elif token in self.params.stop_ids:
            self._finish("stop", token)
        else:
            self._read(self._detokenizer.push(token))
            if self.finish_reason is None and len(self.tokens) >= self._end:
                self._finish("length", None)

    def abort(self) -> None:
        """End the stream where it stands."""
        if self.finish_reason is None:
            self._finish("abort", None)

    def fail(self) -> None:
        """End the stream where it stands, because its next token cannot be decided."""
        if self.finish_reason is None:
            self._finish("error", None)

    def roll_back(self, length: int, committed: int) -> None:
        """Go back to ``length`` tokens, of which the caches hold ``committed``.

        The output that is left is emitted again: text and history follow from the tokens alone.
        """
        kept = self.tokens[self.prompt_length : length]
        if length != len(self.tokens):
            del self.tokens[self.prompt_length :]
            self._open()
            for token in kept:
                self.emit(token)
        self.committed = committed

    @property
    def unread(self) -> str:
        """The text released since ``mark_read``."""
        return "".join(self._pieces[self._unread :])

    def mark_read(self) -> None:
        """Count what was released as read."""
        self._unread = len(self._pieces)

    def _read(self, piece: str) -> None:
        """Release text, unless a stop string ends it.

        A stop string counts if its last character is released once ``min_tokens`` tokens are
        there, wherever it begins.
        """
        if self.history.emitted < self.params.min_tokens:
            self._pieces.append(self._stops.pass_over(piece))
            return
        released, hit = self._stops.push(piece)
        self._pieces.append(released)
        if hit is not None:
            self.finish_reason, self.stop_reason = "stop", hit

    def _finish(self, reason: FinishReason, stop_reason: int | str | None) -> None:
        """End the stream; held-back text is released, and may still hold a stop string.

        An end token's own text is left out or kept as a stop string is.
        """
        if reason == "stop" and self._keeps_end:
            self._read(self._detokenizer.push(self.tip))
        self._read(self._detokenizer.finish())
        if self.finish_reason is None:
            self._pieces.append(self._stops.flush())
            self.finish_reason, self.stop_reason = reason, stop_reason
