"""Tokenizers from the vocabulary that a GGUF file carries.

Two kinds: "gpt2", byte-level byte-pair encoding whose pre-tokenizer is named by the file, and
"llama", SentencePiece byte-pair encoding, where a piece's score says how early it is merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from outrider.text.gguf_vocabulary import (
    BYTE_TOKENS,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    GgufVocabulary,
)

SPACE: Final = "\u2581"

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

LLAMA3_SPLIT: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL
)
QWEN2_SPLIT: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _TAIL
)
TEKKEN_SPLIT: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _TAIL
)
GPT2_SPLIT: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Splitting:
    """How a byte-level vocabulary cuts text before merging.

    Attributes:
        patterns: cuts applied one after another; each leaves its matches whole.
        whole_words: a cut piece that is itself a token is not merged from parts.
        compose: text is brought into normal form C first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    compose: bool = False


_GPT2: Final = Splitting((GPT2_SPLIT,))
_DIGITS: Final = Splitting((r"\p{N}", GPT2_SPLIT))
_LLAMA3: Final = Splitting((LLAMA3_SPLIT,), whole_words=True)
_QWEN2: Final = Splitting((QWEN2_SPLIT,), compose=True)
_TEKKEN: Final = Splitting((TEKKEN_SPLIT,), whole_words=True)
_DEFAULT: Final = Splitting((r"[\p{P}\$\+<=>\^~\|]+", GPT2_SPLIT, r"\p{N}+", r"[0-9][0-9][0-9]"))

#: Values of ``tokenizer.ggml.pre`` that can be reproduced; any other is cut as "default".
SPLITTINGS: Final = {
    "default": _DEFAULT,
    **dict.fromkeys(
        (
            *("gpt-2", "phi-2", "olmo", "mpt", "jais", "trillion", "gigachat", "a.x-4.0"),
            *("mellum", "exaone4", "granite-docling"),
        ),
        _GPT2,
    ),
    **dict.fromkeys(
        (
            *("smollm", "starcoder", "refact", "codeshell", "command-r", "exaone"),
            *("minerva-7b", "mellum2"),
        ),
        _DIGITS,
    ),
    **dict.fromkeys(
        (
            *("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "falcon-h1", "pixtral"),
            *("midm-2.0", "lfm2"),
        ),
        _LLAMA3,
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "tekken": _TEKKEN,
}


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes.

    Raises:
        ModelError: an unknown kind, or a vocabulary that contradicts itself; the message names the
            field.
    """
    if vocabulary.model == "gpt2":
        tokenizer = _byte_level(vocabulary)
    elif vocabulary.model == "llama":
        tokenizer = _sentence_piece(vocabulary)
    else:
        raise vocabulary.error("model", f"must be gpt2 or llama, not {vocabulary.model!r}")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in vocabulary.of_kind(UNKNOWN, CONTROL)]
    )
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False) for token in vocabulary.of_kind(USER_DEFINED)]
    )
    if vocabulary.prefix or vocabulary.suffix:
        tokenizer.post_processor = _surround(vocabulary)
    return tokenizer


def _surround(vocabulary: GgufVocabulary) -> processors.TemplateProcessing:
    """Return the step that puts the prefix and the suffix around a text."""

    # Pieces of a template are names: a token's own text could hold what the notation means.
    def name(token: int) -> str:
        return f"token{token}"

    around = (*vocabulary.prefix, *vocabulary.suffix)
    return processors.TemplateProcessing(
        single=[*map(name, vocabulary.prefix), "$A", *map(name, vocabulary.suffix)],
        special_tokens=[
            {"id": name(token), "ids": [token], "tokens": [vocabulary.tokens[token]]}
            for token in dict.fromkeys(around)
        ],
    )


def _bpe(vocabulary: GgufVocabulary, merges: list[tuple[str, str]], **options: object) -> Tokenizer:
    """Return a byte-pair model; a merge of or into a token that is not there is an error."""
    try:
        model = models.BPE(vocabulary.ids, merges, **options)
    except Exception as error:  # the library raises plain Exception
        raise vocabulary.error("merges", f"does not fit the tokens: {error}") from None
    return Tokenizer(model)


def _byte_level(vocabulary: GgufVocabulary) -> Tokenizer:
    """Byte-level byte-pair encoding."""
    splitting = SPLITTINGS.get(vocabulary.pre, _DEFAULT)
    if vocabulary.unmade and not vocabulary.merges:
        raise vocabulary.error(
            "merges",
            f"is missing; without it no text can become tokens such as {vocabulary.unmade[0]!r}",
        )
    merges: list[tuple[str, str]] = []
    for merge in vocabulary.merges:
        left, space, right = merge.partition(" ")
        if not space or not left or not right:
            raise vocabulary.error("merges", f"must hold pairs of tokens, not {merge!r}")
        merges.append((left, right))
    tokenizer = _bpe(vocabulary, merges, ignore_merges=splitting.whole_words)
    cuts = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in splitting.patterns
    ]
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spell])
    if splitting.compose:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _score_merges(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Return the merges that a scored vocabulary implies: best result first.

    Every way to cut a piece into two pieces is a merge, ranked by the score of the piece. Markup
    takes no part. Cuts of one piece are ordered by the ids of their halves.
    """
    ids = vocabulary.ids
    text = set(vocabulary.of_kind(NORMAL, UNKNOWN, USER_DEFINED))
    ranked = sorted(
        (-vocabulary.scores[ids[token]], ids[token], token) for token in text if len(token) > 1
    )
    merges: list[tuple[str, str]] = []
    for _, _, token in ranked:
        cuts = [
            (ids[token[:at]], ids[token[at:]], at)
            for at in range(1, len(token))
            if token[:at] in text and token[at:] in text
        ]
        merges.extend((token[:at], token[at:]) for _, _, at in sorted(cuts))
    return merges


def _sentence_piece(vocabulary: GgufVocabulary) -> Tokenizer:
    """SentencePiece byte-pair encoding with byte fallback."""
    if not vocabulary.scores:
        raise vocabulary.error("scores", "is missing; it must have one number for each token")
    unk = None if vocabulary.unk_id is None else vocabulary.tokens[vocabulary.unk_id] or None
    has_bytes = vocabulary.ids.keys() >= BYTE_TOKENS
    tokenizer = _bpe(
        vocabulary,
        _score_merges(vocabulary),
        unk_token=unk,
        fuse_unk=True,
        byte_fallback=has_bytes,
    )
    prepend = [normalizers.Prepend(SPACE)] if vocabulary.space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.space_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer
