"""The tokenizer and the chat template in a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import tokenizers

from outrider.config.model import ModelConfig
from outrider.loaders.fields import Fields, read_json
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.errors import ModelError

TOKENIZER: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"
TEMPLATE: Final = "chat_template.jinja"

#: Files from which transformers can build a tokenizer without tokenizer.json.
SOURCES: Final = ("tokenizer.model", "vocab.json", "tekken.json", "vocab.txt")

ROLES: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """Return the tokenizer in a folder.

    Its ``eos_ids`` are those of the configuration and, after them, the one that the tokenizer's
    own settings name.

    Raises:
        ModelError: it is missing or damaged, or has more tokens than the model.
    """
    backend = _backend(folder)
    source = str(folder / TOKENIZER)
    settings = _settings(folder)
    named = {role: text for role in ROLES if (text := _token_text(settings, role))}
    special = SpecialTokens(
        bos_id=_token_id(backend, named.get("bos_token"), config.bos_id),
        eos_ids=_eos_ids(backend, named.get("eos_token"), config.eos_ids),
        named=named,
        chat_template=_chat_template(folder, settings),
    )
    tokenizer = Tokenizer(backend, source, special)
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"{source}: has token ids up to {tokenizer.vocab_size - 1}, but the model has a "
            f"vocabulary of {config.vocab_size}"
        )
    return tokenizer


def _backend(folder: Path) -> tokenizers.Tokenizer:
    """Load tokenizer.json, or let transformers convert an older file."""
    path = folder / TOKENIZER
    if path.is_file():
        try:
            return tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{path}: not a tokenizer: {' '.join(str(error).split())}") from None
    if not any((folder / name).is_file() for name in SOURCES):
        raise ModelError(f"{folder}: holds no tokenizer; {TOKENIZER} is missing")
    from transformers import AutoTokenizer

    try:
        converted: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        backend: tokenizers.Tokenizer = converted.backend_tokenizer
    except Exception as error:  # conversion fails in many ways
        detail = " ".join(str(error).split())
        raise ModelError(f"{folder}: the tokenizer cannot be converted: {detail}") from None
    return backend


def _settings(folder: Path) -> Fields:
    """Fields of tokenizer_config.json; none if there is no such file."""
    path = folder / SETTINGS
    return read_json(path) if path.is_file() else Fields(str(path), {})


def _token_text(settings: Fields, role: str) -> str | None:
    """Text of a token with a role; it is stored as text or as an object with ``content``."""
    if isinstance(settings.value(role), dict):
        return settings.sub(role).string("content")
    return settings.string(role, None)


def _token_id(backend: tokenizers.Tokenizer, text: str | None, default: int | None) -> int | None:
    """Id of a token by its text."""
    found: int | None = None if text is None else backend.token_to_id(text)
    return default if found is None else found


def _eos_ids(
    backend: tokenizers.Tokenizer, text: str | None, configured: tuple[int, ...]
) -> tuple[int, ...]:
    own = _token_id(backend, text, None)
    return configured if own is None else tuple(dict.fromkeys((*configured, own)))


def _chat_template(folder: Path, settings: Fields) -> str | None:
    """Source of the chat template. Its own file wins; of several, the default one is taken."""
    path = folder / TEMPLATE
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: cannot be read: {error}") from None
    value = settings.value("chat_template")
    if not isinstance(value, list):
        return settings.string("chat_template", None)
    for entry in value:
        if isinstance(entry, dict) and entry.get("name") == "default":
            return Fields(settings.source, entry, "chat_template.").string("template")
    raise settings.error("chat_template", 'a template, or a list with one named "default"')
