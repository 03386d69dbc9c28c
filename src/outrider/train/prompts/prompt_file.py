"""A user's own prompts, one a line of a file."""

from __future__ import annotations

from pathlib import Path

from outrider.loaders.files import require_file
from outrider.types.errors import DrafterError


def read_prompts(path: Path) -> list[str]:
    """The lines of a file that are not empty.

    Raises:
        DrafterError: the file cannot be read or holds no prompt.
    """
    require_file(path, DrafterError)
    try:
        # The mark that some editors begin a file with is not a part of the first prompt.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DrafterError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise DrafterError(f"{path}: cannot be read: {error}") from None
    # Not splitlines, which also divides at separators inside a sentence, such as U+2028.
    lines = [line.strip() for line in text.split("\n")]
    prompts = [line for line in lines if line]
    if not prompts:
        raise DrafterError(f"{path}: holds no prompt")
    return prompts
