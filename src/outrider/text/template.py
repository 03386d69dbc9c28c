"""Chat templates: messages to prompt text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outrider.types.errors import ModelError, RequestError
from outrider.types.lines import one_line


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant wrote; here it renders its body unchanged."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter, which models were not trained on."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _environment() -> ImmutableSandboxedEnvironment:
    """Return the environment that templates are written for: that of Hugging Face."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    filters: dict[str, Callable[..., Any]] = environment.filters
    filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _in_parts(message: Mapping[str, object]) -> Mapping[str, object]:
    """The message with its text as the only part of its content."""
    return {**message, "content": [{"type": "text", "text": message.get("content")}]}


#: A text that no template writes by itself.
_MARK: Final = "\u27e6mark\u27e7"


class ChatTemplate:
    """A compiled chat template. Templates are foreign code and run in a sandbox.

    Attributes:
        text: the template's source.
    """

    def __init__(self, text: str, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile a template.

        Args:
            text: the template in Jinja's language.
            source: the file it came from, for messages.
            special_tokens: variables such as ``bos_token`` that templates use.

        Raises:
            ModelError: the template is not valid Jinja.
        """
        self.text = text
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(text)
        except (TemplateError, RecursionError) as error:
            raise ModelError(f"{source}: chat template: {one_line(error)}") from None

    def render(self, messages: Sequence[Mapping[str, object]], **variables: object) -> str:
        """Return the prompt text of a conversation.

        Args:
            messages: turns with ``role`` and ``content``, oldest first; content is text.
            variables: further template variables. ``add_generation_prompt`` is True unless given.

        Raises:
            RequestError: the template refuses the messages, or fails on them.
        """
        told = [_in_parts(message) for message in messages] if self._reads_parts else messages
        return self._render(told, variables)

    @cached_property
    def _reads_parts(self) -> bool:
        """Whether the template shows content in parts alone, and would lose plain text."""
        message = {"role": "user", "content": _MARK}
        found = []
        for told in (message, _in_parts(message)):
            try:
                found.append(_MARK in self._render([told], {}))
            except RequestError:
                found.append(False)
        return found == [False, True]

    def _render(
        self, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object]
    ) -> str:
        context: dict[str, object] = {
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            **self._special_tokens,
            **variables,
        }
        try:
            return self._template.render(messages=list(messages), **context)
        # Any exception type can come out of a foreign template.
        except Exception as error:
            raise RequestError("messages", f"the chat template says: {one_line(error)}") from None
