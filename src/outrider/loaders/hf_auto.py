"""Tokenizers as transformers builds them from a folder, by the rules of the class it is given.

Most classes take of tokenizer.json only the vocabulary, the merges and what goes around a text;
the rest they make anew from the settings (``add_prefix_space``, ``legacy``). Which class a folder
gets depends on the settings, on config.json and on tables inside transformers. These rules are not
repeated here: transformers is asked, unless a folder is surely one that it leaves as it is, since
importing it takes about a second.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tokenizers

from outrider.loaders.fields import Fields, show
from outrider.types.errors import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

#: Classes without rules of their own, and the model types for which such a class, or none, means
#: that tokenizer.json is taken as it is. Not for every type: Qwen 2 has one class whatever its
#: settings say, and Qwen 3 one if they say nothing.
GENERIC: Final = ("PreTrainedTokenizerFast", "TokenizersBackend")
UNCHANGED: Final[Mapping[str, tuple[str | None, ...]]] = {
    "llama": (None, *GENERIC),
    "mistral": (None, *GENERIC),
    "qwen3": GENERIC,
}
#: Settings by which the classes without rules change what they read.
CHANGES: Final = ("fast_tokenizer_files", "fix_mistral_regex")

#: Names of classes that are tokenizers, and not one that looks for such a class.
TOKENIZERS: Final = re.compile(r"^(?!Auto).*(Tokenizer|Backend$)")

#: Fields of config.json that decide on the class, besides the type of the model.
DECIDING: Final = ("tokenizer_class", "model_name")

#: Most characters of a foreign message.
SHOWN: Final = 120


@dataclass(frozen=True)
class AutoBuilt:
    """A tokenizer that transformers built.

    Attributes:
        class_name: the class it was given.
        backend: the tokenizer, with every added token.
        named: special tokens by role, such as ``bos_token``; those of the class where the settings
            name none.
    """

    class_name: str
    backend: tokenizers.Tokenizer
    named: Mapping[str, str]


def is_unchanged(config: Fields, settings: Fields) -> bool:
    """Whether transformers would take tokenizer.json as it is; if in doubt, it would not.

    Args:
        config: config.json.
        settings: tokenizer_config.json.
    """
    if any(settings.has(name) for name in CHANGES):
        return False
    return _class_name(config, settings) in UNCHANGED.get(str(config.value("model_type")), ())


def auto_tokenizer(folder: Path, config: Fields, settings: Fields) -> AutoBuilt:
    """Let transformers build the tokenizer of a folder.

    It reads nothing but that folder and runs no code from it. Whether Mistral's own library is
    installed makes no difference.

    Args:
        folder: the checkpoint.
        config: its config.json.
        settings: its tokenizer_config.json.

    Raises:
        ModelError: transformers cannot; the message is its own, shortened to one line.
    """
    name = _class_name(config, settings)
    # Any class of transformers would do there: one of models would load the weights.
    if name is not None and not (isinstance(name, str) and TOKENIZERS.search(name)):
        raise ModelError(f"{show(name)} is no class of tokenizers")
    from transformers import AutoTokenizer

    try:
        with _quiet("transformers"):
            built: Any = AutoTokenizer.from_pretrained(
                folder,
                config=_deciding(config),
                local_files_only=True,
                trust_remote_code=False,
                mistral_format=False,
            )
        named: dict[str, object] = built.special_tokens_map
        return AutoBuilt(
            class_name=type(built).__name__,
            backend=built.backend_tokenizer,
            named={role: text for role, text in named.items() if isinstance(text, str)},
        )
    except Exception as error:  # it fails in many ways
        fault = " ".join(str(error).split()) or type(error).__name__
        shown = fault if len(fault) <= SHOWN else fault[: SHOWN - 3] + "..."
        raise ModelError(shown) from None


def _class_name(config: Fields, settings: Fields) -> object:
    """The class that the files name, None if they name none."""
    return settings.value("tokenizer_class") or config.value("tokenizer_class") or None


def _deciding(config: Fields) -> PretrainedConfig:
    """What decides on the class; other fields, which transformers might refuse, have no part."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

    kept = {name: config.value(name) for name in DECIDING if config.has(name)}
    kind = config.string("model_type", None)
    if kind not in CONFIG_MAPPING:
        return PretrainedConfig(**kept)
    decided: PretrainedConfig = AutoConfig.for_model(kind, **kept)
    return decided


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Keep a library's advice to authors of models to itself."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
