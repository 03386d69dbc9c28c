"""The tokenizer in a Hugging Face folder, with its special tokens and its chat template."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import tokenizers

from outrider.config.model import ModelConfig
from outrider.loaders.fields import Fields, read_json
from outrider.loaders.files import existing_file
from outrider.loaders.hf_added_tokens import FolderTokens
from outrider.loaders.hf_auto import AutoBuilt, auto_tokenizer, is_unchanged
from outrider.loaders.hf_config import CONFIG
from outrider.loaders.hf_template import read_chat_template
from outrider.text.tokenizer import SpecialTokens, Tokenizer
from outrider.types.errors import ModelError

_LOG: Final = logging.getLogger("outrider")

TOKENIZER: Final = "tokenizer.json"
VOCABULARY: Final = "vocab.json"
MERGES: Final = "merges.txt"
SETTINGS: Final = "tokenizer_config.json"

#: Files from which transformers can build a tokenizer without tokenizer.json, and the packages
#: that it needs for them.
SOURCES: Final = {
    "tokenizer.model": ("sentencepiece", "google.protobuf"),
    "tekken.json": (),
    VOCABULARY: (),
    "vocab.txt": (),
}
#: How pip names a package that is imported under another name.
PACKAGES: Final = {"google.protobuf": "protobuf"}


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """Return the tokenizer in a folder.

    Its ``eos_ids`` are those of the configuration and, after them, the one that the tokenizer's
    own settings name. It may have more tokens than the model has rows, or fewer.

    Raises:
        ModelError: it is missing or damaged.
    """
    settings = _optional(folder / SETTINGS)
    backend, named, doubts = _open(folder, settings)
    bos, eos = (_id(backend, named, role) for role in ("bos_token", "eos_token"))
    eos_ids = config.eos_ids
    if eos is not None and eos >= config.vocab_size:
        doubts.append(
            f"eos_token {named['eos_token']!r} has the id {eos}, but the vocabulary has "
            f"{config.vocab_size} tokens: it is left out"
        )
    elif eos is not None:
        eos_ids = tuple(dict.fromkeys((*eos_ids, eos)))
    if doubts:
        _LOG.warning("%s: %s", settings.source, "; ".join(doubts))
    special = SpecialTokens(
        bos_id=config.bos_id if bos is None else bos,
        eos_ids=eos_ids,
        named=named,
        chat_template=read_chat_template(folder, settings),
    )
    return Tokenizer(backend, str(folder / TOKENIZER), special)


def _optional(path: Path) -> Fields:
    """Read a file's fields; a missing one has none."""
    return read_json(path) if existing_file(path) else Fields(str(path), {})


def _open(
    folder: Path, settings: Fields
) -> tuple[tokenizers.Tokenizer, Mapping[str, str], list[str]]:
    """Return the tokenizer with all its tokens, its tokens by role, and clauses for a warning."""
    config = _optional(folder / CONFIG)
    if not existing_file(folder / TOKENIZER):
        built = _converted(folder, config, settings)
        return built.backend, built.named, []
    doubts: list[str] = []
    if not is_unchanged(config, settings):
        settings.boolean("add_prefix_space", None)
        try:
            built = auto_tokenizer(folder, config, settings)
        except ModelError as error:
            doubts.append(
                f"transformers cannot build the tokenizer ({error}): {TOKENIZER} is taken as it is"
            )
        else:
            # Also checks the settings, where transformers takes any value.
            tokens = FolderTokens(folder, settings, built.backend)
            return built.backend, built.named, list(tokens.misplaced())
    backend = _backend(folder / TOKENIZER)
    backend.encode_special_tokens = settings.boolean("split_special_tokens", False)
    tokens = FolderTokens(folder, settings, backend)
    tokens.add()
    named = {role: token.content for role, token in tokens.named.items()}
    return backend, named, [*doubts, *tokens.misplaced()]


def _backend(path: Path) -> tokenizers.Tokenizer:
    """Load tokenizer.json."""
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{path}: not a tokenizer: {' '.join(str(error).split())}") from None


def _converted(folder: Path, config: Fields, settings: Fields) -> AutoBuilt:
    """Let transformers convert older files."""
    source = next((name for name in SOURCES if existing_file(folder / name)), None)
    if source is None:
        raise ModelError(f"{folder}: holds no tokenizer; {TOKENIZER} is missing")
    missing = [PACKAGES.get(name, name) for name in SOURCES[source] if not _installed(name)]
    if missing:
        packages = " ".join(missing)
        raise ModelError(
            f"{folder}: holds no {TOKENIZER}, and converting {source} needs: pip install {packages}"
        )
    if source == VOCABULARY and not existing_file(folder / MERGES):
        raise _inconvertible(folder, source, f"{MERGES} is missing")
    try:
        built = auto_tokenizer(folder, config, settings)
    except ModelError as error:
        raise _inconvertible(folder, source, str(error)) from None
    # A class that reads other files makes an empty tokenizer of these.
    if source == VOCABULARY:
        listed = read_json(folder / source)
        if any(built.backend.token_to_id(token) != listed.value(token) for token in listed.names()):
            raise _inconvertible(folder, source, f"{built.class_name} does not read it")
    return built


def _inconvertible(folder: Path, source: str, fault: str) -> ModelError:
    """Return the error for a tokenizer that transformers cannot build from older files."""
    return ModelError(
        f"{folder}: holds no {TOKENIZER}, and transformers cannot convert {source}: {fault}; name "
        f"the right tokenizer_class in {SETTINGS}, or save the tokenizer as {TOKENIZER}"
    )


def _installed(package: str) -> bool:
    """Whether a package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that holds it is missing
        return False


def _id(backend: tokenizers.Tokenizer, named: Mapping[str, str], role: str) -> int | None:
    """Id of the token with a role, None if there is none."""
    found: int | None = backend.token_to_id(named[role]) if role in named else None
    return found
