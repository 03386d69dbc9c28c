"""What each token adds to the decoded text, so that text can be released while tokens arrive.

A tokenizer's decoder turns a whole token list into text. Here the same decoder runs token by token:
``push`` returns text that no later token can change, ``finish`` returns the rest. The pieces joined
are the text of the whole list, for any list.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from outrider.types.errors import ModelError

REPLACEMENT: Final = "\ufffd"
BYTE_TOKEN_LENGTH: Final = 6


class PieceDecoder(Protocol):
    """Decodes one token list, token by token."""

    def push(self, token: str) -> str:
        """Take the next token; return the text that is now certain."""

    def finish(self) -> str:
        """Return the text that was still open at the end."""


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

    def push(self, token: str) -> str:
        """Decode the token's bytes up to the last whole character."""
        try:
            spelled = bytes([self._alphabet[character] for character in token])
        except KeyError:  # an added token that is not written in the byte alphabet
            spelled = token.encode()
        return self._utf8.decode(spelled)

    def finish(self) -> str:
        """Decode what is left of a broken character."""
        return self._utf8.decode(b"", final=True)


def _byte_token(token: str) -> int | None:
    """The byte that a token such as ``<0x0A>`` stands for; None for any other token."""
    if len(token) != BYTE_TOKEN_LENGTH or token[:3] != "<0x" or token[-1] != ">":
        return None
    try:
        return int(token[3:5], 16) if token[3:5].isalnum() else None
    except ValueError:
        return None


class FallbackDecoder:
    """SentencePiece vocabularies: tokens spell text, and bytes stand in for rare characters.

    A run of byte tokens is one unit: if it is not UTF-8 as a whole, each of its bytes becomes
    U+FFFD. So a run stays open until another token ends it.
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
        self._run = bytearray()

    def push(self, token: str) -> str:
        """Decode a token, and the run of bytes that it ends."""
        token = self._transform(token)
        byte = _byte_token(token) if self._byte_fallback else None
        if byte is not None:
            self._run.append(byte)
            return ""
        return self._strip(self._close_run() + token)

    def finish(self) -> str:
        """Decode the last run of bytes."""
        return self._strip(self._close_run())

    def _close_run(self) -> str:
        try:
            text = self._run.decode()
        except UnicodeDecodeError:
            text = REPLACEMENT * len(self._run)
        self._run.clear()
        return text

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

    def push(self, token: str) -> str:
        """Decode a token."""
        text = token.replace(self._marker, "" if self._first else " ")
        self._first = False
        return text

    def finish(self) -> str:
        """Nothing stays open."""
        return ""


class JoinDecoder:
    """Vocabularies without a decoder: tokens are joined by spaces."""

    def __init__(self) -> None:
        self._first = True

    def push(self, token: str) -> str:
        """Decode a token."""
        text = token if self._first else " " + token
        self._first = False
        return text

    def finish(self) -> str:
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
