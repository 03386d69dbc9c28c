"""The vocabulary that a GGUF file carries, and what each of its tokens is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from outrider.text.markup import (
    MARKUP,
    end_names,
    is_unmistakable,
    shown_names,
    text_names,
)
from outrider.types.errors import ModelError

#: Token kinds, as GGUF numbers them.
NORMAL: Final = 1
UNKNOWN: Final = 2
CONTROL: Final = 3
USER_DEFINED: Final = 4
UNUSED: Final = 5
BYTE: Final = 6

BYTE_TOKENS: Final = frozenset(f"<0x{byte:02X}>" for byte in range(256))

#: Roles whose tokens stand at the edges of texts and turns.
MARKERS: Final = ("bos", "eos", "eot", "eom")
#: Roles whose tokens end an answer.
END_ROLES: Final = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokenizer fields of a GGUF file, under their names there.

    Attributes:
        source: the file, for messages.
        model: "gpt2" or "llama".
        pre: name of the pre-tokenizer, for "gpt2".
        tokens: spelled tokens; the index is the id. An id with an empty one has no token.
        token_types: kind of each token as stored; empty if all are text.
        merges: pairs "left right", first merged first, for "gpt2".
        scores: score of each token, for "llama".
        prefix: ids put before a text, in practice the token that begins it.
        suffix: ids put after a text.
        unk_id: token for text that cannot be spelled, for "llama".
        space_prefix: text is preceded by a space, for "llama".
        special: ids by role ("bos", "eos", "eot", ...), as the file names them.
    """

    source: str
    model: str
    tokens: Sequence[str]
    pre: str = "default"
    token_types: Sequence[int] = ()
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    unk_id: int | None = None
    space_prefix: bool = True
    special: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in (("token_type", self.token_types), ("scores", self.scores)):
            if values and len(values) != len(self.tokens):
                raise self.error(name, f"must have {len(self.tokens)} entries, not {len(values)}")
        named = (*self.prefix, *self.suffix, self.unk_id or 0, *self.special.values())
        for token in named:
            if not 0 <= token < len(self.tokens):
                raise self.error(
                    "tokens", f"has {len(self.tokens)} entries, but id {token} is used"
                )

    @cached_property
    def ids(self) -> dict[str, int]:
        """Spelled token to id; text becomes the last of several that are spelled alike."""
        return {token: index for index, token in enumerate(self.tokens) if token}

    @cached_property
    def twins(self) -> dict[int, str]:
        """Ids that no text becomes, since a later one is spelled alike; how they are spelled."""
        if len(self.ids) == len(self.tokens) - self.tokens.count(""):
            return {}
        return {
            index: token
            for index, token in enumerate(self.tokens)
            if token and self.ids[token] != index
        }

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Kind of each token.

        It is the stored one, NORMAL if none is stored or it is unknown, except where the token's
        name says better: bytes of a "llama" vocabulary, and markup. A token that text can become
        is not markup for its name alone, unless no text has such a name.
        """
        stored = self.token_types or [NORMAL] * len(self.tokens)
        shown, plain = shown_names(self.ids), text_names(self.ids)
        kinds = [
            self._kind(token, kind) if token not in shown | plain else NORMAL
            for token, kind in zip(self.tokens, stored, strict=True)
        ]
        for name in shown & self.ids.keys():
            kinds[self.ids[name]] = USER_DEFINED
        for role in MARKERS:
            token = self.special.get(role)
            if token is not None and kinds[token] in (NORMAL, USER_DEFINED, UNUSED):
                name = self.tokens[token]
                if name not in shown | plain and (name in MARKUP or not self._is_text(name)):
                    kinds[token] = CONTROL
        return tuple(kinds)

    def _kind(self, token: str, stored: int) -> int:
        """Kind of a token by what is stored and by its name."""
        if self.model == "llama" and token in BYTE_TOKENS:
            return BYTE
        plain = stored not in (UNKNOWN, CONTROL, USER_DEFINED, UNUSED)
        if is_unmistakable(token) and (plain or token in MARKUP):
            return CONTROL
        if token in MARKUP and stored != UNKNOWN and not (plain and self._is_text(token)):
            return CONTROL
        return NORMAL if plain and stored != BYTE else stored

    def _is_text(self, token: str) -> bool:
        """Whether tokenising plain text can give the token."""
        if len(token) == 1:
            return True
        if self.model == "gpt2":
            return token in self._made
        return any(
            token[:cut] in self.ids and token[cut:] in self.ids for cut in range(1, len(token))
        )

    @cached_property
    def _made(self) -> frozenset[str]:
        """What merges make."""
        return frozenset(merge.replace(" ", "", 1) for merge in self.merges)

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer: those the file names, then those whose names say so."""
        excluded = shown_names(self.ids) | text_names(self.ids)
        named = [self.special[role] for role in END_ROLES if role in self.special]
        kept = [token for token in named if self.tokens[token] not in excluded]
        known = [self.ids[name] for name in end_names(self.ids)]
        return tuple(
            dict.fromkeys([*kept, *(token for token in known if self.kinds[token] == CONTROL)])
        )

    @cached_property
    def unmade(self) -> tuple[str, ...]:
        """Text tokens that only merges can make and that none makes, for "gpt2"."""
        return tuple(
            token for token in self.of_kind(NORMAL) if len(token) > 1 and token not in self._made
        )

    def error(self, name: str, fault: str) -> ModelError:
        """Return the error for a field of the file."""
        return ModelError(f"{self.source}: field tokenizer.ggml.{name} {fault}")

    def of_kind(self, *wanted: int) -> Iterator[str]:
        """Tokens of some kinds, in order of their ids; none that is empty."""
        return (
            token
            for token, kind in zip(self.tokens, self.kinds, strict=True)
            if kind in wanted and token
        )
