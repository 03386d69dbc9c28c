"""Models on the Hugging Face hub, downloaded once into its cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any, Final

from outrider.types.errors import ModelError
from outrider.types.lines import one_line
from outrider.types.progress import Progress, silent

#: Files of a checkpoint folder, besides its safetensors.
FILES: Final = frozenset(
    {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "tekken.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
    }
)
PATTERNS: Final = ("*.safetensors", *sorted(FILES))
HUB_ID: Final = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
GGUF_SUFFIX: Final = ".gguf"
ABSENT: Final = "no such file in this repository"
UNREACHABLE: Final = "is not in the local cache and the Hugging Face hub cannot be reached"


def is_hub_id(spec: str) -> bool:
    """Whether ``spec`` can be ``org/name``; anything that looks like a path cannot."""
    return HUB_ID.fullmatch(spec) is not None


def split_hub_id(spec: str) -> tuple[str, str | None]:
    """Split ``org/name`` or ``org/name:file.gguf`` into the repository and the file."""
    repository, colon, file = spec.partition(":")
    return repository, file if colon else None


def fetch_folder(spec: str, progress: Progress = silent) -> Path:
    """Download the checkpoint of a repository, or find it in the cache.

    Args:
        spec: ``org/name``.
        progress: told about bytes as they arrive.

    Returns:
        The folder with configuration, safetensors and tokenizer.

    Raises:
        ModelError: the repository does not exist, needs a login, or cannot be reached.
    """
    return _snapshot(spec, spec, PATTERNS, progress)


def fetch_gguf(repository: str, file: str, progress: Progress = silent) -> Path:
    """Download one GGUF file of a repository, or find it in the cache.

    Raises:
        ModelError: as in ``fetch_folder``, or there is no such file.
    """
    label = f"{repository}:{file}"
    if not file.endswith(GGUF_SUFFIX):
        raise ModelError(f"{label}: after the colon comes the name of a {GGUF_SUFFIX} file")
    path = _snapshot(label, repository, (escape(file),), progress) / file
    if ".." in PurePosixPath(file).parts or not path.is_file():
        raise ModelError(f"{label}: {_absence(repository, file)}")
    return path


def _snapshot(label: str, repository: str, patterns: Sequence[str], progress: Progress) -> Path:
    """Download the files of a repository that match, or find them in the cache.

    Files are fetched one by one elsewhere in the hub library, which then waits and retries for half
    a minute where a snapshot falls back to the cache at once; so this is the way for all.
    """
    from huggingface_hub import snapshot_download

    bar = _bar(label, progress)
    # Nested folders hold copies in other formats ("original/", "onnx/").
    ignored = None if any("/" in pattern for pattern in patterns) else ["*/*"]
    path = _explained(
        label,
        lambda: snapshot_download(
            repository, allow_patterns=list(patterns), ignore_patterns=ignored, tqdm_class=bar
        ),
    )
    return Path(path)


def _absence(repository: str, file: str) -> str:
    """Why a file is not in a snapshot: the repository has none, or the hub could not be asked."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    try:
        get_hf_file_metadata(hf_hub_url(repository, file))
    except errors.EntryNotFoundError:
        return ABSENT
    except Exception:  # whatever kept the hub from answering
        return UNREACHABLE
    return ABSENT


def _explained(spec: str, download: Callable[[], Any]) -> str:
    """Run a download; every failure becomes one line about ``spec``."""
    from huggingface_hub import errors

    try:
        return str(download())
    except errors.GatedRepoError:
        page = f"https://huggingface.co/{spec.partition(':')[0]}"
        fault = f"is gated; accept its terms at {page} and log in with: hf auth login"
    except errors.RepositoryNotFoundError:
        fault = "no such model on the Hugging Face hub; for a private one: hf auth login"
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError):
        fault = UNREACHABLE
    except errors.EntryNotFoundError:
        fault = ABSENT
    except errors.HFValidationError as error:
        fault = f"not a hub id: {one_line(error)}"
    except errors.HfHubHTTPError as error:
        fault = f"the Hugging Face hub refused: {one_line(error)}"
    except Exception as error:  # of the hub library and of the several it is built on
        fault = f"cannot be downloaded: {one_line(error)}"
    raise ModelError(f"{spec}: {fault}")


def _bar(label: str, progress: Progress) -> type[Any]:
    """Return a tqdm class that reports to ``progress`` and draws nothing.

    The hub library counts files in one bar and bytes in one or two others; only bytes are
    reported, those of the bar that is furthest.
    """
    from huggingface_hub.utils import tqdm

    furthest = 0

    class Bar(tqdm):  # type: ignore[misc]
        """Forwards what a bar would show."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            kwargs["disable"] = False
            super().__init__(*args, **kwargs)

        def display(self, *_: object, **__: object) -> None:
            nonlocal furthest
            if self.unit == "B" and self.total and self.n >= furthest:
                furthest = int(self.n)
                progress(label, min(furthest, int(self.total)), int(self.total))

    return Bar
