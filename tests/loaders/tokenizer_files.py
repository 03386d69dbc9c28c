"""Writes folders with a tokenizer and the files beside it, and reads them in both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkpoint_files import LLAMA
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from outrider.loaders.hf_config import read_config
from outrider.loaders.hf_tokenizer import read_tokenizer
from outrider.text.tokenizer import Tokenizer

ROWS = 300


def byte_level(begins: bool = False, more: Sequence[tuple[str, str]] = ()) -> Backend:
    """Two control tokens, the bytes, and a few merges, with ``more`` after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<eos>", "<bos>", *alphabet, "th", "the", "Ġthe", *("".join(pair) for pair in more)]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), *more]
    backend = Backend(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>", "<bos>"])
    if begins:
        backend.post_processor = processors.TemplateProcessing(
            "<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 0)]
        )
    return backend


def sentence_piece() -> Backend:
    """Bytes as tokens of their own, and a space before the text."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "<bos>", "<eos>", *bytes_, *"▁thexabc", "th", "the", "▁the"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    merges = [("t", "h"), ("th", "e"), ("▁", "the")]
    backend = Backend(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<bos>", "<eos>"])
    return backend


def spaced(scheme: str | None) -> Backend:
    """``sentence_piece`` with a pre-tokenizer that puts the space before a text by ``scheme``."""
    backend = sentence_piece()
    if scheme is not None:
        backend.normalizer = None
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split=False)
    return backend


def single_digits() -> Backend:
    """``byte_level`` that composes characters and cuts numbers, despite a merge of two digits."""
    backend = byte_level(more=[("1", "2")])
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return backend


def write(folder: Path, backend: Backend, files: Mapping[str, object]) -> Path:
    """Write a folder without weights.

    ``files`` are JSON, or text for a template; a config.json among them replaces that of a Llama.
    """
    (folder / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": ROWS}))
    backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def ours_of(folder: Path) -> Tokenizer:
    return read_tokenizer(folder, read_config(folder))


def theirs_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)
