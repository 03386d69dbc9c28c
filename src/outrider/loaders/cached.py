"""What the Hugging Face hub's cache holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: The branch that ``org/name`` means.
BRANCH: Final = "main"


def cached_repositories() -> Iterator[tuple[str, Path]]:
    """Yield the cached repositories of models, by name: "org/name" and the folder of its files.

    The cache is where the hub library looks, so HF_HOME and HF_HUB_CACHE are heeded.
    """
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return
    for repository in sorted(repositories, key=lambda found: str(found.repo_id)):
        if repository.repo_type == "model":
            for revision in repository.revisions:
                if BRANCH in revision.refs:
                    yield str(repository.repo_id), Path(revision.snapshot_path)
