"""Words that a model knows."""

from __future__ import annotations

import re
from typing import Final, Protocol

_WORD: Final = re.compile(r" [a-z]{4,}")


class TokenTexts(Protocol):
    """The part of a tokenizer that knows its words."""

    def token_text(self, token_id: int) -> str:
        """Text of one token."""


def plain_words(tokenizer: TokenTexts, vocab_size: int) -> tuple[str, ...]:
    """Words of small letters that are one token of a model after a space."""
    texts = (tokenizer.token_text(token) for token in range(vocab_size))
    return tuple(text[1:] for text in texts if _WORD.fullmatch(text))
