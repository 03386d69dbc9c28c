"""Text while tokens arrive."""

from __future__ import annotations

from outrider.text.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one growing token list into pieces of text.

    The pieces joined, ``finish`` included, equal ``tokenizer.decode`` of all tokens. A character
    is released whole; each token is looked at once, so the cost per token does not grow.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        """``skip_special`` leaves special tokens out of the text."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset()
        self._decoder = tokenizer.decoder()

    def push(self, token_id: int) -> str:
        """Take the next token; return the text that no later token can change."""
        token = self._tokenizer.token(token_id)
        if token is None or token_id in self._skipped:
            return ""
        return self._decoder.push(token)

    def finish(self) -> str:
        """Return the text that was still open; no token may follow."""
        return self._decoder.finish()
