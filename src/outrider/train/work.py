"""Work folders: each belongs to one configuration, and a run goes on from what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from outrider.loaders.files import user_path
from outrider.train.config import TrainConfig
from outrider.train.config_file import load_config
from outrider.train.data.corpus import CONVERSATIONS
from outrider.train.files import replacing
from outrider.train.fitting.trainer import STATE
from outrider.types.errors import DrafterError

CONFIG: Final = "config.json"
#: Fields that may change between runs on one folder: where the run takes place, how long it is
#: and what it leaves, but neither its data nor the network.
FREE: Final = frozenset(
    {
        "out",
        "work",
        "device",
        "storage",
        "generate.key_step",
        "optim.steps",
        "optim.seconds",
        "optim.attention",
        "optim.compile",
        "optim.graphs",
        "optim.log_every",
        "optim.save_seconds",
        "optim.eval_seconds",
    }
)
#: Fields that are paths, or names that stand for paths; "" is none.
PATHS: Final = frozenset({"model", "data", "generate.prompts"})
REMEDY: Final = "name another --work folder, or delete this one"


def check_ownership(config: TrainConfig) -> None:
    """Check that the work folder is new, or holds the data or state of the same run.

    Raises:
        DrafterError: it belongs to another configuration, or does not tell to which.
    """
    work = Path(config.work)
    trained = (work / STATE).exists()
    if not trained and not any(work.glob(CONVERSATIONS)):
        return
    path = work / CONFIG
    if not path.exists():
        if trained:
            raise DrafterError(f"{path}: is missing, though {STATE} is there; {REMEDY}")
        return
    try:
        earlier = load_config(path)
    except DrafterError as error:
        raise DrafterError(f"{error}; {REMEDY}") from None
    found = _differences(earlier, config)
    if found:
        raise DrafterError(
            f"{work}: belongs to a run with {', '.join(found)}; {REMEDY} "
            f"(--config {path} goes on with its settings)"
        )


def _differences(earlier: TrainConfig, now: TrainConfig) -> list[str]:
    """Every field that tells two runs apart, with both values."""
    old, new = _flat(asdict(earlier)), _flat(asdict(now))
    return [
        f"{name} {old[name]!r}, not {value!r}"
        for name, value in new.items()
        if name not in FREE and not _same(name, old[name], value)
    ]


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The fields of nested objects by their dotted names."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _same(name: str, old: object, new: object) -> bool:
    if old == new:
        return True
    return name in PATHS and bool(old) and bool(new) and _resolved(old) == _resolved(new)


def _resolved(path: object) -> Path:
    return user_path(str(path)).resolve()


def write_config(config: TrainConfig) -> None:
    """Write the configuration into its work folder."""
    with replacing(Path(config.work) / CONFIG) as partial:
        partial.write_text(config.to_json())
