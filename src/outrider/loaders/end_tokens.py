"""Tokens that begin a text or end an answer, in a Hugging Face folder's configuration."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from outrider.loaders.fields import Fields, read_json
from outrider.loaders.files import existing_file

GENERATION: Final = "generation_config.json"
#: What stands for no token in some files.
NO_ID: Final = -1

_LOG: Final = logging.getLogger("outrider")


def read_eos_ids(folder: Path, fields: Fields, rows: int) -> tuple[int, ...]:
    """Return the tokens that end an answer, from generation_config.json or else config.json.

    An id without a row of the embedding, such as -1, can never be drawn: it is left out with a
    warning. A file that names no id that can be drawn does not hide the other.

    Args:
        folder: the checkpoint.
        fields: its config.json.
        rows: rows of the embedding.

    Raises:
        ModelError: an entry is not an id.
    """
    path = folder / GENERATION
    holders = [read_json(path), fields] if existing_file(path) else [fields]
    for holder in holders:
        if holder.has("eos_token_id"):
            kept = _within(holder, "eos_token_id", _ids(holder, "eos_token_id"), rows)
            if kept:
                return kept
    return ()


def read_bos_id(fields: Fields, rows: int) -> int | None:
    """Return the token that begins a text, None if there is none; the rest is as above."""
    named = _id(fields, "bos_token_id") if fields.has("bos_token_id") else None
    kept = _within(fields, "bos_token_id", () if named is None else (named,), rows)
    return kept[0] if kept else None


def _ids(fields: Fields, name: str) -> tuple[int, ...]:
    """Read one id or a list of ids."""
    if isinstance(fields.value(name), int):
        return (_id(fields, name),)
    ids = fields.integers(name)
    if any(token < NO_ID for token in ids):
        raise fields.error(name, "a token id or a list of them, each at least 0")
    return tuple(dict.fromkeys(ids))


def _id(fields: Fields, name: str) -> int:
    found = fields.integer(name)
    return found if found == NO_ID else fields.integer(name, low=0)


def _within(fields: Fields, name: str, ids: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the ids that have a row; warn of the others in one line."""
    outside = ", ".join(str(token) for token in ids if not 0 <= token < rows)
    if outside:
        _LOG.warning(
            "%s: field %s: %s left out, since the vocabulary has %d tokens",
            fields.source,
            name,
            outside,
            rows,
        )
    return tuple(token for token in ids if 0 <= token < rows)
