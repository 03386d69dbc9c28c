"""Text while tokens arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outrider.text.tokenizer import Tokenizer

#: Most bytes that a character can be unfinished with: UTF-8 takes four for the longest.
OPEN_BYTES: Final = 3


class Detokenizer:
    """Decodes one growing token list into pieces of text, after a prompt.

    The pieces joined, ``finish`` included, are the text of prompt and tokens together, less the
    text of the prompt. Both are what ``tokenizer.decode`` returns, with one exception: a character
    that the prompt begins and the tokens complete belongs to the tokens, although the prompt's own
    text shows U+FFFD for its beginning. A character is released whole; each token is looked at
    once, so the cost per token does not grow.
    """

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool, prompt: Sequence[int] = ()
    ) -> None:
        """Begin after a prompt; ``skip_special`` leaves special tokens out of both texts."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._decoder = tokenizer.decoder()
        self._read_prompt(prompt)
        # What the prompt's text ends with in place of a character that may still be completed.
        self._shown = self._decoder.open()

    def _read_prompt(self, prompt: Sequence[int]) -> None:
        """Bring the decoder into the state that reading the whole prompt would leave it in.

        Once its beginning is primed, all it knows is the bytes of an unfinished character. They
        come from the last three tokens that spell anything, since each spells a byte at least, and
        whatever came before does not matter: a character's first byte ends any earlier one, and
        three bytes without a first byte are the end of one. So the middle is not read.
        """
        begun = 0
        while begun < len(prompt) and not self._decoder.primed:
            self._feed(prompt[begun])
            begun += 1
        tail, found = len(prompt), 0
        while tail > begun and found < OPEN_BYTES:
            tail -= 1
            token = prompt[tail]
            found += token not in self._skipped and bool(self._tokenizer.token(token))
        for token in prompt[tail:]:
            self._feed(token)

    def push(self, token_id: int) -> str:
        """Take the next token; return the text that no later token can change."""
        return self._less_shown(self._feed(token_id))

    def finish(self) -> str:
        """Return the text that was still open; no token may follow."""
        return self._less_shown(self._decoder.open())

    def _feed(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        return self._tokenizer.feed(self._decoder, token_id)

    def _less_shown(self, text: str) -> str:
        """Take off what the prompt's text shows already.

        The bytes of a broken character become text together, so ``text`` begins with all of it or,
        if the character was completed, with none.
        """
        if text:
            text, self._shown = text.removeprefix(self._shown), ""
        return text
