"""``models`` and ``drafters``: what is here, by the names that commands take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.warm import ForkServer

COMMIT = "b" * 40


def cache(home: Path, name: str, source: str | None, *, branch: str = "main") -> Path:
    """Put a folder into a hub cache as the hub library lays it out."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / branch).write_text(COMMIT)
    if source is None:
        snapshot.mkdir(parents=True)
    else:
        shutil.copytree(source, snapshot)
    return snapshot


@pytest.fixture
def listed(server: ForkServer) -> Callable[..., dict[str, Any]]:
    """What a command lists, by name; the hub library finds its cache when it is imported."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}

    def names(command: str, home: Path, **environment: str) -> dict[str, Any]:
        process = server.start(
            [command, "--json"],
            stdout=subprocess.PIPE,
            environment=base | (environment or {"HF_HOME": str(home)}),
        )
        out, errors = process.communicate()
        assert (process.returncode, errors) == (0, b"")
        return {entry["name"]: entry for entry in json.loads(out)[command]}

    return names


@pytest.fixture
def home(tmp_path: Path, tiny: str, drafter: str) -> Path:
    """A cache with a model, a drafter, and what looks like one and cannot be loaded."""
    cache(tmp_path, "org/tiny", tiny)
    cache(tmp_path, "org/drafter", drafter)
    cache(tmp_path, "org/empty", None)
    cache(tmp_path, "org/elsewhere", tiny, branch="other")
    (cache(tmp_path, "org/partial", tiny) / "model.safetensors").unlink()
    foreign = cache(tmp_path, "org/foreign", tiny) / "config.json"
    fields = json.loads(foreign.read_text()) | {"architectures": ["MambaForCausalLM"]}
    foreign.write_text(json.dumps(fields | {"model_type": "mamba"}))
    (cache(tmp_path, "org/notgguf", None) / "x.gguf").write_bytes(b"GGUF")
    return tmp_path


def test_models_are_the_embedded_one_and_what_the_cache_can_serve(
    listed: Any, home: Path, tiny: str
) -> None:
    found = listed("models", home)
    cached = {name: entry for name, entry in found.items() if entry["origin"] == "cached"}
    assert set(cached) == {"org/tiny"}
    size = sum(path.stat().st_size for path in Path(tiny).iterdir())
    assert (cached["org/tiny"]["kind"], cached["org/tiny"]["bytes"]) == ("llama", size)
    assert found["smollm2"]["origin"] == "shipped"
    assert 90e6 < found["smollm2"]["bytes"] < 110e6
    assert listed("models", home, HF_HUB_CACHE=str(home / "hub")) == found


def test_a_gguf_file_of_the_cache_has_its_own_name(listed: Any, tmp_path: Path) -> None:
    from outrider.loaders.smollm2 import smollm2_path

    snapshot = cache(tmp_path, "org/quantised", None)
    (snapshot / "sub").mkdir()
    for name in ("a.gguf", "sub/b.gguf"):
        (snapshot / name).symlink_to(smollm2_path())
    found = listed("models", tmp_path)
    assert set(found) == {"smollm2", "org/quantised:a.gguf", "org/quantised:sub/b.gguf"}
    assert found["org/quantised:a.gguf"]["bytes"] == found["smollm2"]["bytes"]


def test_drafters_are_built_in_shipped_and_cached(listed: Any, home: Path, drafter: str) -> None:
    found = listed("drafters", home)
    origins = {name: entry["origin"] for name, entry in found.items()}
    assert origins == {
        "auto": "built in",
        "ngram": "built in",
        "none": "built in",
        "smollm2-dspark": "shipped",
        "smollm2-mtp": "shipped",
        "org/drafter": "cached",
    }
    assert found["org/drafter"]["kind"] == "dflash"
    assert found["org/drafter"]["target"] == "2 layers, width 32"
    size = sum(path.stat().st_size for path in Path(drafter).iterdir())
    assert found["org/drafter"]["bytes"] == size
    assert found["smollm2-dspark"]["target"] == "30 layers, width 576"


@pytest.mark.parametrize("command", ["models", "drafters"])
def test_no_cache_is_no_fault(listed: Any, tmp_path: Path, command: str) -> None:
    found = listed(command, tmp_path / "absent")
    assert not [name for name, entry in found.items() if entry["origin"] == "cached"]
    (tmp_path / "hub").write_text("a file where a folder is expected")
    assert set(listed(command, tmp_path)) == set(found)


@pytest.mark.parametrize("command", ["models", "drafters"])
def test_the_lists_are_tables(outrider: Any, command: str) -> None:
    shown = outrider(command).out
    names = [entry["name"] for entry in outrider(command, "--json").json()[command]]
    assert all(f"\n {name} " in shown for name in names)
