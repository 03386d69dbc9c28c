"""Small tokenizers of every kind that checkpoints have, built here and now."""

from __future__ import annotations

from functools import lru_cache

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's 2024, we'll see 1234567 things!",
    "def f(x):\n    return x ** 2  # a comment\n\n\tif x:\n        pass\r\n",
    "日本語のテキスト, 中文, 한국어, русский текст, ελληνικά, العربية",
    "emoji 🤗🎉 and 👩‍👩‍👧‍👦 families, flags 🇩🇪🇯🇵, é and e\u0301",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "   leading, trailing   and   runs \t\t of \n\n\n whitespace\u00a0\u2003 ",
]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@lru_cache
def byte_level(bos: bool = False) -> Tokenizer:
    """Byte-level vocabulary with markup; with ``bos`` it begins texts with ``<|endoftext|>``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens(
        [AddedToken("<think>", normalized=False), AddedToken("größe ", special=False)]
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    return tokenizer


def sentence_pieces() -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and GGUF token types of a small SentencePiece vocabulary."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    learner.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), behavior="merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=320, limit_alphabet=90, show_progress=False)
    # Markup is no text: no piece of it is learnt.
    learner.train_from_iterator([text for text in TEXTS if "<|" not in text], trainer)
    learnt = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    pieces = [token for token, _ in learnt]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))]
    return tokens, scores, kinds


@lru_cache
def byte_fallback() -> Tokenizer:
    """SentencePiece vocabulary as Llama 2 has it: byte tokens, a space before the text."""
    from outrider.text.gguf_tokenizer import build_tokenizer
    from outrider.text.gguf_vocabulary import GgufVocabulary

    tokens, scores, kinds = sentence_pieces()
    return build_tokenizer(
        GgufVocabulary("tiny", "llama", tokens, token_types=kinds, scores=scores, unk_id=0)
    )


@lru_cache
def metaspace() -> Tokenizer:
    """Unigram vocabulary with a Metaspace decoder."""
    pieces = ["<unk>", "▁", "▁the", "▁a", "fox", "▁▁", "é", "🤗", *"abcdefghij"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@lru_cache
def words() -> Tokenizer:
    """Whole words and no decoder."""
    return Tokenizer(models.WordLevel({f"w{index}": index for index in range(50)}, unk_token="w0"))
