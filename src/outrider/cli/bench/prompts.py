"""Prompts to measure with: the built-in set, or a file of one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from outrider.cli.message import read_text
from outrider.loaders.files import require_file, user_path
from outrider.text.messages import Message, checked_messages
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
    messages: tuple[Message, ...]


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
    if prompt is None and messages is not None:
        try:
            return BenchPrompt(category, tuple(checked_messages(messages)))
        except RequestError as error:
            raise RequestError("--prompts", f"{where}: {error}") from None
    raise RequestError("--prompts", f'{where}: needs either a "prompt" text or "messages"')


def builtin_prompts() -> list[BenchPrompt]:
    """Return the built-in set: 16 prompts in each of six categories, some with two turns."""
    text = files("outrider.cli.bench").joinpath("prompts.json").read_text(encoding="utf-8")
    return [_parse(entry, "prompts.json") for entry in json.loads(text)]


def read_prompts(path: Path) -> list[BenchPrompt]:
    """Read a file of one JSON object a line; empty lines are skipped."""
    path = user_path(str(path))
    require_file(path, lambda fault: RequestError("--prompts", fault))
    text = read_text(path, "--prompts")
    prompts = []
    # Not splitlines: separators such as U+2028 stand inside of JSON strings.
    for number, line in enumerate(text.split("\n"), 1):
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
