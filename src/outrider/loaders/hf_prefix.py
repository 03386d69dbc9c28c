"""Tokenizers of Llama's kind without the space before a text, where a folder's settings say so.

The classes of Llama in transformers build their tokenizer anew from the settings, of which
``add_prefix_space`` alone changes ordinary text; the classes for tokenizers of any kind leave
tokenizer.json as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import tokenizers

from outrider.loaders.fields import Fields

CLASSES: Final = (
    "LlamaTokenizer",
    "LlamaTokenizerFast",
    "CodeLlamaTokenizer",
    "CodeLlamaTokenizerFast",
)
#: Fields of a tokenizer that hold steps, and the field in which a sequence holds its own.
STEPS: Final = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
}


def without_prefix(backend: tokenizers.Tokenizer, settings: Fields) -> tokenizers.Tokenizer:
    """Return the tokenizer that the settings ask for: itself, or one that adds no space.

    Args:
        backend: the tokenizer of tokenizer.json.
        settings: tokenizer_config.json.

    Raises:
        ModelError: ``add_prefix_space`` is neither true nor false.
    """
    if settings.value("tokenizer_class") not in CLASSES:
        return backend
    if settings.boolean("add_prefix_space", True):
        return backend
    values = json.loads(backend.to_str())
    for field, inner in STEPS.items():
        values[field] = _without(values[field], inner)
    return tokenizers.Tokenizer.from_str(json.dumps(values))


def _without(step: Mapping[str, Any] | None, inner: str) -> Mapping[str, Any] | None:
    """The step without what puts a space before a text, or takes one away; None if it was that."""
    if step is None or _is_prefix(step):
        return None
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    if step["type"] == "Sequence":
        kept = (_without(part, inner) for part in step[inner])
        return {**step, inner: [part for part in kept if part is not None]}
    return step


def _is_prefix(step: Mapping[str, Any]) -> bool:
    if step["type"] == "Prepend":
        return True
    return step["type"] == "Strip" and step.get("content") == " " and step.get("start") == 1
