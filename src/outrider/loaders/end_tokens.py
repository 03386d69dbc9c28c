"""Tokens that begin a text or end an answer, in a Hugging Face folder's configuration."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from outrider.loaders.fields import Fields, read_json
from outrider.loaders.files import existing_file

GENERATION: Final = "generation_config.json"

_LOG: Final = logging.getLogger("outrider")


def read_eos_ids(folder: Path, fields: Fields, rows: int) -> tuple[int, ...]:
    """Return the tokens that end an answer, from generation_config.json or else config.json.

    An id without a row of the embedding can never be drawn, one below 0 for example: it is left out
    with a warning. An empty list says nothing.

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
        ids = _ids(holder, "eos_token_id") if holder.has("eos_token_id") else ()
        if ids:
            return _within(holder, "eos_token_id", ids, rows)
    return ()


def read_bos_id(fields: Fields, rows: int) -> int | None:
    """Return the token that begins a text, None if there is none; the rest is as above."""
    named = fields.integer("bos_token_id", None)
    kept = _within(fields, "bos_token_id", () if named is None else (named,), rows)
    return kept[0] if kept else None


def _ids(fields: Fields, name: str) -> tuple[int, ...]:
    """Read one id or a list of ids."""
    if isinstance(fields.value(name), int):
        return (fields.integer(name),)
    return tuple(dict.fromkeys(fields.integers(name)))


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
