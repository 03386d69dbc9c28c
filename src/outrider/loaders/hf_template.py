"""The chat template in a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from outrider.loaders.fields import Fields, read_json
from outrider.loaders.files import existing_file
from outrider.types.errors import ModelError

TEMPLATE: Final = "chat_template.jinja"
OLDER: Final = "chat_template.json"
FIELD: Final = "chat_template"
DEFAULT: Final = "default"


def read_chat_template(folder: Path, settings: Fields) -> str | None:
    """Return the source of the chat template, None if there is none.

    A file of its own wins over the settings, and those over the file that processors wrote. Of
    several templates, the one named "default" is taken.

    Raises:
        ModelError: a file is damaged, or several templates have names and none is the default.
    """
    path = folder / TEMPLATE
    if existing_file(path):
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{path}: cannot be read: {error}") from None
    if not settings.has(FIELD) and existing_file(folder / OLDER):
        return _template(read_json(folder / OLDER))
    return _template(settings)


def _template(fields: Fields) -> str | None:
    """Template in a field: text, a list of named ones, or an object of them."""
    value = fields.value(FIELD)
    if isinstance(value, Mapping) and DEFAULT in value:
        return fields.sub(FIELD).string(DEFAULT)
    if not isinstance(value, list | Mapping):
        return fields.string(FIELD, None)
    for entry in value:
        if isinstance(entry, Mapping) and entry.get("name") == DEFAULT:
            return Fields(fields.source, entry, f"{FIELD}.").string("template")
    raise fields.error(FIELD, f'a template, or a list with one named "{DEFAULT}"')
