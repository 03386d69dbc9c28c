"""Tokens of a Hugging Face folder that stand in the files beside tokenizer.json.

The rules are those of transformers. ``tokenizer_config.json`` names special tokens by role, lists
others, and may hold a table of added tokens by id. Only where that table is missing are the older
files read: ``special_tokens_map.json``, which wins over the settings, and ``added_tokens.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import tokenizers
from tokenizers import AddedToken

from outrider.loaders.fields import Fields, read_json, show
from outrider.loaders.files import existing_file
from outrider.types.errors import ModelError

MAP: Final = "special_tokens_map.json"
ADDED: Final = "added_tokens.json"
DECODER: Final = "added_tokens_decoder"

ROLES: Final[tuple[str, ...]] = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
#: Names that the special tokens without a role have had over time; the first one present counts.
LISTS: Final = ("extra_special_tokens", "additional_special_tokens")

FLAGS: Final = ("lstrip", "rstrip", "normalized", "single_word")


class FolderTokens:
    """Tokens that a folder's settings know, and ``add``, which gives them to its tokenizer."""

    def __init__(self, folder: Path, settings: Fields, backend: tokenizers.Tokenizer) -> None:
        """Read the settings, and the older files where those count.

        Args:
            folder: the checkpoint.
            settings: its tokenizer_config.json.
            backend: its tokenizer.json.

        Raises:
            ModelError: a file is damaged, or an entry is not a token; the message names both.
        """
        self._backend = backend
        self._roles: dict[str, AddedToken] = {}
        #: Roles of one model's own: those written as objects or in the older map come first.
        self._own: dict[str, AddedToken] = {}
        self._own_texts: dict[str, AddedToken] = {}
        self._listed: list[AddedToken] = []
        #: Added tokens by the id that the settings give them.
        self._numbered: dict[int, AddedToken] = {}
        self._read_named(settings, self._own_texts, special=False)
        self._read_listed(settings, special=False)
        if settings.has(DECODER):
            alike = self._read_numbered(settings.sub(DECODER))
        else:
            alike = self._read_older(folder, settings)
        # A role takes the flags of an added token that is spelled alike.
        for role, token in self._roles.items():
            self._roles[role] = alike.get(token.content, token)

    @property
    def named(self) -> dict[str, AddedToken]:
        """Special tokens by role, such as ``bos_token``, in the order in which they are added."""
        roles = {role: self._roles[role] for role in ROLES if role in self._roles}
        return {**roles, **self._own, **self._own_texts}

    def _read_named(self, fields: Fields, texts: dict[str, AddedToken], *, special: bool) -> None:
        """Take the tokens with a role; flags such as ``add_bos_token`` are none.

        Args:
            fields: the file.
            texts: takes roles of the model's own that are written as text.
            special: whether an object stands for a special token unless it says so.
        """
        for name in fields.names():
            value = fields.value(name)
            if name in ROLES and value is not None:
                self._roles[name] = _token(fields, name, special=special)
            elif name in ROLES or not name.endswith("_token"):
                continue
            elif isinstance(value, str):
                texts[name] = _token(fields, name, special=special)
            elif isinstance(value, Mapping):
                self._own[name] = _token(fields, name, special=special)

    def _read_listed(self, fields: Fields, *, special: bool) -> None:
        """Take the special tokens that are only listed, or named in a table of their own."""
        name = next((name for name in LISTS if fields.value(name)), None)
        if name is None:
            return
        value = fields.value(name)
        if isinstance(value, Mapping):
            table = fields.sub(name)
            for role in table.names():
                self._own_texts[role] = _token(table, role, special=special)
            return
        if not isinstance(value, list):
            raise fields.error(name, "a list of tokens, or an object of named ones")
        table = Fields(fields.source, {str(at): one for at, one in enumerate(value)}, f"{name}.")
        self._listed.extend(_token(table, at, special=special) for at in table.names())

    def _read_numbered(self, table: Fields) -> dict[str, AddedToken]:
        """Take the table of added tokens; return them by their text."""
        for key in table.names():
            if not (key.isascii() and key.isdecimal() and len(key) < 10):
                raise ModelError(f"{table.source}: field {DECODER} must have ids, not {show(key)}")
            if not isinstance(table.value(key), Mapping):
                raise table.error(key, "an object with the token's content")
            self._numbered[int(key)] = _token(table, key, special=False)
        return {token.content: token for token in self._numbered.values()}

    def _read_older(self, folder: Path, settings: Fields) -> dict[str, AddedToken]:
        """Take the older files; return their added tokens and tokenizer.json's by their text."""
        listed = list(self._listed)
        if existing_file(folder / MAP):
            older = read_json(folder / MAP)
            self._read_named(older, self._own, special=True)
            # A list in the settings, be it empty, wins over the older name; a table is no list.
            tables = [settings.value(name) for name in LISTS if name in settings.names()]
            if older.has(LISTS[0]) or all(isinstance(table, Mapping) for table in tables):
                self._read_listed(older, special=True)
            if older.has(LISTS[0]):
                listed = self._listed
        there = self._backend.get_added_tokens_decoder()
        alike: dict[str, AddedToken] = {}
        if existing_file(folder / ADDED):
            table = read_json(folder / ADDED)
            special = {token.content for token in (*self._roles.values(), *listed)}
            for text in table.names():
                known = text in special
                _check_text(table, text, text)
                alike[text] = AddedToken(text, normalized=not known, special=known)
                token = table.integer(text, low=0)
                # Where both give an id, tokenizer.json knows better.
                if token not in there:
                    self._numbered[token] = alike[text]
        return alike | {token.content: token for token in there.values()}

    def add(self) -> None:
        """Give the tokenizer what it lacks, in the order of transformers, which decides the ids."""
        there = self._backend.get_added_tokens_decoder().values()
        same = {repr(token) for token in there}
        missing = [token for _, token in sorted(self._numbered.items()) if repr(token) not in same]
        known = {token.content for token in (*there, *missing)}
        named = self.named.values()
        names = {token.content for token in named}
        others = [token for token in (*named, *self._listed) if token.content not in known]
        for token in (*missing, *others):
            token.special = token.special or token.content in names
        # Of two that are spelled alike and differ in flags, the later one counts.
        missing.extend({repr(token): token for token in others}.values())
        self._backend.add_tokens(missing)

    def misplaced(self) -> Iterator[str]:
        """Yield a clause for each token that has another id than the settings give it."""
        for wanted, token in sorted(self._numbered.items()):
            found = self._backend.token_to_id(token.content)
            if found not in (None, wanted):
                yield f"token {token.content!r} has the id {found}, not {wanted} as in the settings"


def _token(fields: Fields, name: str, *, special: bool) -> AddedToken:
    """Read a token: text is special; an object has ``content`` and flags."""
    value = fields.value(name)
    if isinstance(value, str):
        _check_text(fields, name, value)
        return AddedToken(value, special=True)
    if not isinstance(value, Mapping):
        raise fields.error(name, "a token: text, or an object with its content")
    entry = fields.sub(name)
    content = entry.string("content")
    _check_text(entry, "content", content)
    flags = {flag: entry.boolean(flag) for flag in FLAGS if entry.has(flag)}
    return AddedToken(content, special=special or entry.boolean("special", False), **flags)


def _check_text(fields: Fields, name: str, text: str) -> None:
    """Refuse text that JSON can spell but that no tokenizer can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise fields.error(name, "valid Unicode text") from None
