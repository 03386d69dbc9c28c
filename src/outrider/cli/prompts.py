"""Prompts to measure with: the built-in set, or a file of one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from outrider.loaders.files import require_file
from outrider.types.errors import RequestError

CATEGORIES = ("chat", "code", "math", "rewriting", "summarising", "extraction")


@dataclass(frozen=True)
class BenchPrompt:
    """One conversation that ends with a user's message.

    Attributes:
        category: what kind of work it asks for.
        messages: the conversation, each message with ``role`` and ``content``.
    """

    category: str
    messages: tuple[dict[str, str], ...]


def _parse(entry: object, where: str) -> BenchPrompt:
    """Read ``{"category": ..., "prompt": ...}`` or ``{"category": ..., "messages": [...]}``."""
    if not isinstance(entry, Mapping):
        raise RequestError("--prompts", f"{where}: must be a JSON object")
    category = entry.get("category", "all")
    prompt, messages = entry.get("prompt"), entry.get("messages")
    if not isinstance(category, str):
        raise RequestError("--prompts", f"{where}: category must be a string, not {category!r}")
    if isinstance(prompt, str) and messages is None:
        return BenchPrompt(category, ({"role": "user", "content": prompt},))
    if prompt is None and isinstance(messages, list) and messages:
        return BenchPrompt(category, tuple(_message(item, where) for item in messages))
    raise RequestError("--prompts", f'{where}: needs either a "prompt" text or "messages"')


def _message(item: object, where: str) -> dict[str, str]:
    if isinstance(item, Mapping):
        role, content = item.get("role"), item.get("content")
        if isinstance(role, str) and isinstance(content, str):
            return {"role": role, "content": content}
    raise RequestError("--prompts", f'{where}: every message needs a "role" and a "content" text')


def builtin_prompts() -> list[BenchPrompt]:
    """Return the built-in set: 16 prompts in each of six categories, some with two turns."""
    text = files("outrider.cli").joinpath("prompts.json").read_text(encoding="utf-8")
    return [_parse(entry, "prompts.json") for entry in json.loads(text)]


def read_prompts(path: Path) -> list[BenchPrompt]:
    """Read a file of one JSON object a line; empty lines are skipped."""
    require_file(path, lambda fault: RequestError("--prompts", fault))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("--prompts", f"{path}: cannot be read: {error}") from None
    prompts = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise RequestError("--prompts", f"{where}: not valid JSON: {error}") from None
            prompts.append(_parse(entry, where))
    if not prompts:
        raise RequestError("--prompts", f"{path}: holds no prompt")
    return prompts


def limit_prompts(prompts: list[BenchPrompt], limit: int | None) -> dict[str, list[BenchPrompt]]:
    """Group prompts by category, in order of appearance, at most ``limit`` in each."""
    grouped: dict[str, list[BenchPrompt]] = {}
    for prompt in prompts:
        group = grouped.setdefault(prompt.category, [])
        if limit is None or len(group) < limit:
            group.append(prompt)
    return grouped
