"""Names of tokens that are markup, and of those that end an answer, whatever a file says of them.

Converters lose token types and end ids; these names are known from the models that use them. They
are the names that llama.cpp goes by, and the openings of turns that belong to them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final

#: Names that end an answer.
ENDS: Final = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<turn|>",
    "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
)

#: Names that end a filled-in middle: padding, the next repository, the next file.
MIDDLE_ENDS: Final = (
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
)

#: Names that are markup and end nothing.
OTHERS: Final = (
    "<|im_start|>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|code_prefix|>",
    "<|code_suffix|>",
    "<|code_middle|>",
    "<s>",
    "<bos>",
    "<pad>",
    "<unk>",
    "<mask>",
    "<start_of_turn>",
    "<|turn>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "<\uff5cUser\uff5c>",
    "<\uff5cAssistant\uff5c>",
    "[BOS]",
    "[UNK]",
    "[INST]",
    "[/INST]",
    "<fim-prefix>",
    "<fim_prefix>",
    "<\uff5cfim\u2581begin\uff5c>",
    "<PRE>",
    "\u2581<PRE>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<\uff5cfim\u2581hole\uff5c>",
    "<SUF>",
    "\u2581<SUF>",
    "<fim-middle>",
    "<fim_middle>",
    "<\uff5cfim\u2581end\uff5c>",
    "<MID>",
    "\u2581<MID>",
)
MARKUP: Final = frozenset((*ENDS, *MIDDLE_ENDS, *OTHERS))

#: Names that structure an answer and are part of its text.
SHOWN: Final = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))

#: The shape that only markup has: no text is cut into ``<|name|>``.
SHAPE: Final = re.compile(r"<[|\uff5c][^|<>\s\uff5c]+[|\uff5c]>")

#: What ends a message, but not the answer, in vocabularies that hold all of the names beside it.
MESSAGE_END: Final = "<|end|>"
MESSAGE_ENDS: Final = (
    ("<|return|>", "<|call|>"),
    ("<|call|>", "<|flush|>"),
    ("<|calls|>", "<|flush|>"),
)

#: A vocabulary with the first of these names spells the second as text.
TEXT_END: Final = ("<|tool_response>", "</s>")


def is_unmistakable(token: str) -> bool:
    """Whether a token has the shape of markup, which no text has."""
    return SHAPE.fullmatch(token) is not None


def shown_names(tokens: Container[str]) -> frozenset[str]:
    """Names of markup that is part of an answer's text, in a vocabulary of ``tokens``."""
    if any(all(name in tokens for name in names) for names in MESSAGE_ENDS):
        return SHOWN | {MESSAGE_END}
    return SHOWN


def text_names(tokens: Container[str]) -> frozenset[str]:
    """Names that are plain text, in a vocabulary of ``tokens``."""
    marker, name = TEXT_END
    return frozenset((name,)) if marker in tokens else frozenset()


def end_names(tokens: Container[str]) -> Iterator[str]:
    """Names of tokens that end an answer in a vocabulary of ``tokens``, best known first."""
    excluded = shown_names(tokens) | text_names(tokens)
    return (name for name in (*ENDS, *MIDDLE_ENDS) if name in tokens and name not in excluded)
