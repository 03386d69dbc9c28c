"""What each token adds to the decoded text, so that text can be released while tokens arrive.

A tokenizer's decoder turns a whole token list into text. Here the same decoder runs token by token:
``push`` returns text that no later token can change, ``open`` says what the unfinished rest would
be. The pieces joined, with the rest, are the text of the whole list, for any list. Two things
differ from the tokenizers library, whose decoder sees spelled tokens only, all at once:

- Added tokens are text as they are written. The library reads them like the vocabulary's own
  pieces: "größe" as bytes, "<0x41>" as a byte.
- In a run of byte tokens each finished character is text at once, and each byte that belongs to
  none becomes one U+FFFD, as in SentencePiece. The library turns a whole run into U+FFFD if any of
  it is not UTF-8, which would take back text that readers of a stream have seen. Runs that are
  UTF-8, and runs that hold no character at all, give the same text in both.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from outrider.types.errors import ModelError

REPLACEMENT: Final = "\ufffd"
#: How a SentencePiece vocabulary spells a byte, and a space.
BYTE_TOKEN: Final = re.compile("<0x([0-9A-Fa-f]{2})>")
SPACE_MARKER: Final = "\u2581"
#: What Python writes for a byte that is not UTF-8 (surrogateescape) to U+FFFD.
_ESCAPED: Final = {0xDC80 + index: REPLACEMENT for index in range(128)}


class PieceDecoder(Protocol):
    """Decodes one token list, token by token."""

    @property
    def primed(self) -> bool:
        """Whether the beginning is over.

        From there on the state is the bytes of an unfinished character, and nothing else.
        """

    def push(self, token: str) -> str:
        """Take the next token of the vocabulary; return the text that is now certain."""

    def push_added(self, text: str) -> str:
        """Take an added token, which stands for itself; return the text that is now certain."""

    def open(self) -> str:
        """Return what the text would end with if no token followed; the state stays."""


def byte_alphabet() -> dict[str, int]:
    """Return the characters that spell bytes in a byte-level vocabulary.

    Printable Latin-1 characters spell themselves; the other bytes take the characters from U+0100
    on, in order of the byte.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in plain}
    others = sorted(set(range(256)) - set(plain))
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


class ByteLevelDecoder:
    """Byte-level vocabularies: tokens spell bytes, and the bytes together are UTF-8.

    Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a broken character.
    """

    def __init__(self, alphabet: Mapping[str, int]) -> None:
        """``alphabet`` is what ``byte_alphabet`` returns."""
        self._alphabet = alphabet
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def primed(self) -> bool:
        """The beginning is like the rest."""
        return True

    def push(self, token: str) -> str:
        """Decode the token's bytes up to the last whole character."""
        try:
            spelled = bytes([self._alphabet[character] for character in token])
        except KeyError:  # a piece that is not written in the byte alphabet
            return self.push_added(token)
        return self._utf8.decode(spelled)

    def push_added(self, text: str) -> str:
        """Add the text; a character left unfinished before it is broken."""
        return self._utf8.decode(text.encode())

    def open(self) -> str:
        """U+FFFD if a character is unfinished."""
        return REPLACEMENT if self._utf8.getstate()[0] else ""


class FallbackDecoder:
    """SentencePiece vocabularies: tokens spell text, and bytes stand in for rare characters.

    A character spelled in bytes is complete with its last byte; a byte that is part of no
    character becomes one U+FFFD.
    """

    def __init__(
        self, transform: Callable[[str], str], byte_fallback: bool, strip: tuple[str, int]
    ) -> None:
        """Set up an empty text.

        Args:
            transform: rewrites a token, in practice U+2581 to a space.
            byte_fallback: whether tokens such as ``<0x0A>`` stand for bytes.
            strip: a character, and how many of it are left out at the start of the text.
        """
        self._transform = transform
        self._byte_fallback = byte_fallback
        self._character, self._to_strip = strip
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")

    @property
    def primed(self) -> bool:
        """Whether nothing is left out any more."""
        return not self._to_strip

    def push(self, token: str) -> str:
        """Decode a token, and a character that it completes or breaks."""
        token = self._transform(token)
        byte = BYTE_TOKEN.fullmatch(token) if self._byte_fallback else None
        if byte is not None:
            return self._strip(self._decode(bytes([int(byte[1], 16)])))
        return self._strip(self._end_run() + token)

    def push_added(self, text: str) -> str:
        """Add the text whole: what is left out at the start is no part of an added token."""
        before = self._strip(self._end_run())
        self._to_strip = 0
        return before + text

    def open(self) -> str:
        """U+FFFD for every byte of an unfinished character."""
        return REPLACEMENT * len(self._utf8.getstate()[0])

    def _decode(self, spelled: bytes, final: bool = False) -> str:
        return self._utf8.decode(spelled, final).translate(_ESCAPED)

    def _end_run(self) -> str:
        return self._decode(b"", final=True)

    def _strip(self, text: str) -> str:
        while self._to_strip and text:
            if not text.startswith(self._character):
                self._to_strip = 0
                break
            text = text[len(self._character) :]
            self._to_strip -= 1
        return text


class MetaspaceDecoder:
    """SentencePiece vocabularies without byte tokens; a leading marker is left out."""

    def __init__(self, marker: str, strip_first: bool) -> None:
        """``marker`` stands for a space; in the first token it is dropped if ``strip_first``."""
        self._marker = marker
        self._first = strip_first

    @property
    def primed(self) -> bool:
        """Whether the first token has passed."""
        return not self._first

    def push(self, token: str) -> str:
        """Decode a token."""
        text = token.replace(self._marker, "" if self._first else " ")
        self._first = False
        return text

    def push_added(self, text: str) -> str:
        """Add the text."""
        self._first = False
        return text

    def open(self) -> str:
        """Nothing stays open."""
        return ""


class JoinDecoder:
    """Vocabularies without a decoder: tokens are joined by spaces."""

    def __init__(self) -> None:
        self._first = True

    @property
    def primed(self) -> bool:
        """Whether the first token has passed."""
        return not self._first

    def push(self, token: str) -> str:
        """Decode a token."""
        text = token if self._first else " " + token
        self._first = False
        return text

    def push_added(self, text: str) -> str:
        """Added tokens are joined like others."""
        return self.push(text)

    def open(self) -> str:
        """Nothing stays open."""
        return ""


def _replacing(old: str, new: str, then: Callable[[str], str]) -> Callable[[str], str]:
    return lambda token: then(token.replace(old, new))


class _Recipe:
    """Reads the steps of a decoder that is a sequence; refuses any order it cannot reproduce."""

    def __init__(self, source: str, steps: list[Mapping[str, object]]) -> None:
        self.source = source
        self.replacements: list[tuple[str, str]] = []
        self.byte_fallback = False
        self.strip = ("", 0)
        fused = False
        for step in steps:
            kind = step.get("type")
            if kind == "Replace" and not self.byte_fallback and not fused:
                self.replacements.append(self._pattern(step))
            elif kind == "ByteFallback" and not fused and not self.byte_fallback:
                self.byte_fallback = True
            elif kind == "Fuse":
                fused = True
            elif kind == "Strip" and fused and not self.strip[0] and step.get("stop") == 0:
                self.strip = (str(step["content"]), int(str(step["start"])))
            else:
                raise unsupported(source, step)

    def _pattern(self, step: Mapping[str, object]) -> tuple[str, str]:
        pattern = step["pattern"]
        if not isinstance(pattern, dict) or set(pattern) != {"String"}:
            raise unsupported(self.source, step)
        return str(pattern["String"]), str(step["content"])

    def build(self) -> PieceDecoder:
        """Return a decoder for one text."""
        transform: Callable[[str], str] = str
        for old, new in reversed(self.replacements):
            transform = _replacing(old, new, transform)
        return FallbackDecoder(transform, self.byte_fallback, self.strip)


def unsupported(source: str, step: Mapping[str, object]) -> ModelError:
    """Return the error for a decoder that this module does not reproduce."""
    shown = " ".join(json.dumps(step, ensure_ascii=False).split())
    return ModelError(
        f"{source}: tokenizer decoder {shown} is not supported; supported are ByteLevel, "
        "Metaspace, and Replace, ByteFallback, Fuse, Strip in this order"
    )


def piece_decoders(source: str, decoder: Mapping[str, object] | None) -> Callable[[], PieceDecoder]:
    """Return a maker of piece decoders.

    Args:
        source: the tokenizer's file, for messages.
        decoder: the ``decoder`` object of a tokenizer.json, None if it has none.

    Raises:
        ModelError: the decoder is of a kind that is not supported.
    """
    if decoder is None:
        return JoinDecoder
    kind = decoder.get("type")
    if kind == "ByteLevel":
        alphabet = byte_alphabet()
        return lambda: ByteLevelDecoder(alphabet)
    if kind == "Metaspace":
        marker = str(decoder["replacement"])
        strip_first = decoder.get("prepend_scheme", "always") != "never"
        return lambda: MetaspaceDecoder(marker, strip_first)
    if kind == "Sequence":
        steps = decoder["decoders"]
        if not isinstance(steps, list):
            raise unsupported(source, decoder)
        if len(steps) == 1:
            return piece_decoders(source, steps[0])
        return _Recipe(source, steps).build
    raise unsupported(source, decoder)
