"""Options about memory and length on the command line, and paths that lead to no file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

LENGTH = ("--temperature", "0", "--max-tokens", "1000", "--ignore-eos", "--raw", "--json")


def tokens(ended: Any) -> int:
    """Tokens of a session that its context ended."""
    assert ended.status == 0, ended.err
    found = ended.json()
    assert found["finish_reason"] == "length"
    return int(found["prompt_tokens"] + found["completion_tokens"])


@pytest.mark.parametrize("name", ["none", "ngram", "learned"])
def test_a_session_is_as_long_as_its_memory(
    process: Any, tiny: str, drafter: str, name: str
) -> None:
    # 2 layers of 2 heads: 32 tokens of float32 keys and values are 8 KiB, 4 KiB more to draft with.
    draft = drafter if name == "learned" else name
    size, wanted = ("60KiB", 4 * 32) if name == "learned" else ("40KiB", 4 * 32)
    ended = process(
        "generate", "abcab", "--model", tiny, "--kernels", "reference", "--drafter", draft,
        *LENGTH, "--kv-cache-memory-bytes", size,
    )  # fmt: skip
    assert tokens(ended) == wanted
    (line,) = ended.err.splitlines()
    assert line.startswith(f"the context is {wanted} of the model's 512 tokens: {size[:2]} KiB of")
    assert "--kv-cache-memory-bytes" in line


def test_memory_for_the_whole_context_needs_no_word(process: Any, tiny: str) -> None:
    given = ("generate", "abcab", "--model", tiny, "--drafter", "none", *LENGTH)
    ended = process(*given, "--kv-cache-memory-bytes", "1.5G")
    assert tokens(ended) == 512
    assert ended.err == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kv-cache-memory-bytes", "much"), "--kv-cache-memory-bytes: must be bytes, such as 2G"),
        (("--kv-cache-memory-bytes", "0"), "--kv-cache-memory-bytes: must be bytes, such as 2GiB"),
        (("--kv-cache-memory-bytes", "9KiB"), "hold no session: the first 32 tokens take 16 KiB"),
        (("--kv-cache-memory-bytes", "8000T"), "and this process can have"),
        (
            ("--kv-cache-memory-bytes", "40KiB", "--max-model-len", "129"),
            "max_model_len: 129 tokens take 48 KiB of KV cache and the budget is 40 KiB; lower "
            "max_model_len (--max-model-len) or raise kv_cache_memory_bytes (--kv-cache-memory-",
        ),
        (("--max-model-len", "513"), "max_model_len: must be at most 512, the model's own"),
    ],
)
def test_what_does_not_fit_is_one_line(
    outrider: Any, tiny: str, options: tuple[str, ...], words: str
) -> None:
    ended = outrider("generate", "abcab", "--model", tiny, "--kernels", "reference", *options)
    assert ended.status == 2
    assert words in ended.err
    assert ended.err.count("\n") == 1


def test_an_audit_without_room_is_one_line(outrider: Any, tiny: str) -> None:
    for size, words in (("9KiB", "lower max_model_len (--max-model-len) or raise"), ("x", "2GiB")):
        ended = outrider("check", "--model", tiny, "--kv-cache-memory-bytes", size)
        assert ended.status == 2
        assert words in ended.err
        assert ended.err.count("\n") == 1


@pytest.mark.parametrize("length", [4, 8])
@pytest.mark.parametrize("name", ["ngram", "learned"])
def test_short_contexts(outrider: Any, tiny: str, drafter: str, length: int, name: str) -> None:
    draft = drafter if name == "learned" else name
    ended = outrider(
        "generate", "ab", "--model", tiny, "--drafter", draft, *LENGTH, "--max-model-len", length
    )
    assert tokens(ended) == length


def test_a_pipe_is_refused_wherever_a_path_can_be(
    process: Any, tiny: str, drafter: str, tmp_path: Path
) -> None:
    """Opened, each would wait for a writer that never comes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    inner = tmp_path / "inner"
    inner.mkdir()
    for path in Path(drafter).iterdir():
        (inner / path.name).symlink_to(path)
    (inner / "model.safetensors").unlink()
    os.mkfifo(inner / "model.safetensors")
    for arguments in (
        ("generate", "a", "--model", pipe),
        ("generate", "a", "--model", tiny, "--drafter", pipe),
        ("generate", "a", "--model", tiny, "--drafter", inner),
        ("inspect", pipe),
        ("inspect", inner),
        ("bench", "--model", tiny, "--prompts", pipe),
        ("train", "--model", tiny, "--prompts", pipe, "--out", tmp_path / "out"),
        ("train", "--model", tiny, "--config", pipe, "--out", tmp_path / "out"),
    ):
        ended = process(*arguments)
        assert ended.status == 2, (arguments, ended)
        assert "not a named pipe" in ended.err
        assert ended.err.count("\n") == 1
    assert json.loads((Path(drafter) / "config.json").read_text())
