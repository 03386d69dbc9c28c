"""The tokenizer, the special tokens and the chat template in a GGUF file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from outrider.loaders.fields import Fields
from outrider.text.gguf_tokenizer import SPLITTINGS, build_tokenizer
from outrider.text.gguf_vocabulary import CONTROL, UNKNOWN, GgufVocabulary
from outrider.text.tokenizer import SpecialTokens, Tokenizer

_LOG: Final = logging.getLogger("outrider")

#: Roles of special tokens, and the fields that name their ids; the first one present counts.
ROLES: Final = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id", "separator_token_id"),
    "pad": ("padding_token_id",),
    "cls": ("cls_token_id",),
    "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}
#: Roles that chat templates know as variables, such as ``bos_token``.
VARIABLES: Final = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

#: Ids that a file which names none has by its kind, as in llama.cpp.
DEFAULTS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "gpt2": {"bos": 11, "eos": 11},
}

#: Pre-tokenizers whose models begin a text with a token unless the file says otherwise.
BEGINNING: Final = frozenset(
    (
        *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "tekken", "chameleon"),
    )
)


@dataclass(frozen=True)
class GgufText:
    """What a file says about text.

    Attributes:
        vocabulary: its tokens.
        special: its special tokens and chat template.
        doubts: what makes the ids of a text uncertain; one clause each.
    """

    vocabulary: GgufVocabulary
    special: SpecialTokens
    doubts: tuple[str, ...]

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; everything that makes its ids uncertain is logged in one line.

        Raises:
            ModelError: it is of an unknown kind, or contradicts itself.
        """
        source = self.vocabulary.source
        backend, twins = build_tokenizer(self.vocabulary), self.vocabulary.twins
        tokenizer = Tokenizer(backend, source, self.special, twins)
        if self.doubts:
            _LOG.warning("%s: %s", source, "; ".join(self.doubts))
        return tokenizer


def read_text(fields: Fields, rows: int) -> GgufText:
    """Return what a file says about text.

    Args:
        fields: the metadata.
        rows: rows of the embedding.

    Raises:
        ModelError: a field is missing, of a wrong type, or contradicts another.
    """
    ids = _SpecialIds(fields, rows)
    model = ids.model
    pre = fields.string("tokenizer.ggml.pre", None)
    begins = model == "llama" or pre in BEGINNING
    vocabulary = GgufVocabulary(
        source=fields.source,
        model=model,
        tokens=ids.tokens,
        pre=pre or "default",
        token_types=fields.integers("tokenizer.ggml.token_type", ()),
        merges=fields.strings("tokenizer.ggml.merges", ()),
        scores=fields.numbers("tokenizer.ggml.scores", ()),
        prefix=ids.around("bos", begins),
        suffix=ids.around("eos", False),
        unk_id=ids.special.get("unk"),
        space_prefix=fields.boolean("tokenizer.ggml.add_space_prefix", True),
        special=ids.special,
    )
    named = {
        f"{role}_token": ids.tokens[token]
        for role, token in ids.special.items()
        if role in VARIABLES
        and (role not in ids.assumed or vocabulary.kinds[token] in (CONTROL, UNKNOWN))
    }
    special = SpecialTokens(
        bos_id=ids.special.get("bos"),
        eos_ids=tuple(token for token in vocabulary.end_ids if token < rows),
        named=named,
        chat_template=fields.string("tokenizer.chat_template", None),
    )
    doubts = (*_cutting_doubts(vocabulary, pre), *_spelling_doubts(vocabulary), *ids.doubts)
    return GgufText(vocabulary, special, doubts)


def _spelling_doubts(vocabulary: GgufVocabulary) -> Iterator[str]:
    """What is uncertain where two tokens are spelled alike."""
    for token, spelled in list(vocabulary.twins.items())[:1]:
        yield (
            f"tokens {token} and {vocabulary.ids[spelled]} of {len(vocabulary.twins)} such pairs "
            f"are both {spelled!r}, so text becomes the later"
        )


def _cutting_doubts(vocabulary: GgufVocabulary, pre: str | None) -> Iterator[str]:
    """What is uncertain about how a byte-level vocabulary cuts text."""
    if vocabulary.model != "gpt2":
        return
    splitting = SPLITTINGS.get(vocabulary.pre)
    if not pre or splitting is None:
        fault = f"{pre!r} is unknown" if pre else "is missing"
        yield (
            f'field tokenizer.ggml.pre {fault}, so text is cut as "default" does, and its ids may '
            "not be those that the model was trained on"
        )
    if vocabulary.unmade and not (splitting and splitting.whole_words):
        yield (
            f"{len(vocabulary.unmade)} text tokens such as {vocabulary.unmade[0]!r} are made by no "
            "merge of field tokenizer.ggml.merges, so no text becomes them"
        )


class _SpecialIds:
    """Special ids of a file, each checked against its vocabulary.

    Attributes:
        model: the tokenizer's kind.
        tokens: the vocabulary.
        special: role to id; each has a token and a row of the embedding.
        assumed: roles whose id is not the file's but the default of its kind.
        doubts: what was wrong, one clause each.
    """

    def __init__(self, fields: Fields, rows: int) -> None:
        self.model = fields.string("tokenizer.ggml.model")
        self.tokens = fields.strings("tokenizer.ggml.tokens")
        self.special: dict[str, int] = {}
        self.assumed: set[str] = set()
        self.doubts: list[str] = []
        self._fields = fields
        self._rows = rows
        self._refused: dict[str, str] = {}
        for role in ROLES:
            self._read(role)

    def _read(self, role: str) -> None:
        """Take the id that the file names for a role, or else the default."""
        default = DEFAULTS.get(self.model, {}).get(role)
        name = next((name for name in ROLES[role] if self._fields.has(_key(name))), None)
        if name is not None:
            token = self._fields.integer(_key(name))
            fault = self._fault(token)
            if fault is None:
                self.special[role] = token
                return
            self._refused[role] = f"field {_key(name)} is {token}, {fault}"
            # A "llama" vocabulary is laid out by its defaults; no other kind is.
            default = default if self.model == "llama" else None
        if default is not None and self._fault(default) is None:
            self.special[role] = default
            self.assumed.add(role)
        self._doubt(role)

    def _doubt(self, role: str) -> None:
        """Note what a role's id rests on, if that is not sure."""
        token = self.special.get(role)
        taken = None if token is None else f"{token} ({self.tokens[token]!r}) is taken"
        if role in self._refused:
            self.doubts.append(f"{self._refused[role]}: {taken or 'it is left out'}")
        elif self.model == "gpt2" and role == "eos" and taken:
            self.doubts.append(f"field {_key(ROLES[role][0])} is missing: {taken}")

    def _fault(self, token: int) -> str | None:
        """Why an id cannot be used, None if it can."""
        if not 0 <= token < len(self.tokens):
            return f"but there are {len(self.tokens)} tokens"
        if token >= self._rows:
            return f"but the embedding has {self._rows} rows"
        return None

    def around(self, role: str, default: bool) -> tuple[int, ...]:
        """Ids that the tokenizer puts at one end of a text: that of ``role`` or none.

        Raises:
            ModelError: the file asks for a token that it does not have.
        """
        name = f"add_{role}_token"
        asked = self._fields.boolean(_key(name), None)
        if asked and (role in self._refused or role not in self.special):
            fault = self._refused.get(role, f"field {_key(ROLES[role][0])} is missing")
            raise self._fields.error(_key(name), f"false, since {fault}")
        added = default if asked is None else asked
        return (self.special[role],) if added and role in self.special else ()


def _key(name: str) -> str:
    return f"tokenizer.ggml.{name}"
