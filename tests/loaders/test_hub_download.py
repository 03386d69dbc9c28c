"""Hub ids: what is downloaded, how progress reads, and what each failure says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkpoint_files import LLAMA, llama_tensors, write_folder, write_gguf
from fake_hub import serving

from outrider.loaders.hub import is_hub_id, split_hub_id

#: Opens each argument in turn and prints what came of it. The hub library reads its address and
#: its cache from the environment when it is imported, so this runs in a process of its own.
PROBE = """
import json, sys
from outrider.loaders.open import open_model
from outrider.types.errors import ModelError
for spec in sys.argv[1:]:
    calls = []
    try:
        checkpoint = open_model(spec, lambda *call: calls.append(call))
        result = [checkpoint.source, checkpoint.quantization, calls]
    except ModelError as error:
        result = str(error)
    print("RESULT", json.dumps(result))
"""


#: An address where nothing listens.
NOWHERE = "http://127.0.0.1:9"


def probe(folder: Path, address: str, *specs: str, offline: bool = False) -> list[object]:
    """Open ``specs`` with the hub at ``address``; return one result for each."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(folder),
        "HF_HUB_OFFLINE": str(int(offline)),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *specs],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line.removeprefix("RESULT ")) for line in lines]


@dataclass(frozen=True)
class Session:
    """What opening every kind of hub id gave.

    Attributes:
        files: the files of ``org/tiny`` on the hub.
        home: the hub library's folder.
        downloaded: names of the files that were asked for.
        results: the given id to what came of it; "again" is the second time.
    """

    files: dict[str, bytes]
    home: Path
    downloaded: set[str]
    results: dict[str, object]

    def opened(self, spec: str) -> tuple[str, str, list[tuple[str, int, int]]]:
        """Source, formats and progress calls of a model that opened."""
        result = self.results[spec]
        assert isinstance(result, list)
        source, formats, calls = result
        return source, formats, [(label, done, total) for label, done, total in calls]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Serve a small model, with files that must not be downloaded, and open it in every way."""
    folder = tmp_path_factory.mktemp("hub")
    made = write_folder(folder / "made", LLAMA, llama_tensors(), shards=2)
    write_gguf(made / "tiny.gguf", llama_tensors())
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    files |= {"pytorch_model.bin": b"x", "original/a.safetensors": b"x", "README.md": b"x"}
    specs = ["org/tiny", "org/tiny:tiny.gguf", "org/tiny:other.gguf", "org/tiny:x.bin"]
    specs += ["org/empty", "org/absent", "gated/model", "broken/model"]
    home = folder / "home"
    with serving({"org/tiny": files, "org/empty": {"README.md": b"x"}}) as (address, requested):
        opened = probe(home, address, *specs, "org/tiny")
        results = dict(zip([*specs, "again"], opened, strict=True))
    results["cached"], results["unknown"] = probe(
        home, NOWHERE, "org/tiny", "org/other", offline=True
    )
    (results["unreachable"],) = probe(home, NOWHERE, "org/other")
    downloaded = {path.partition("/resolve/")[2].partition("/")[2] for path in requested}
    return Session(files, home, downloaded, results)


def test_only_what_is_needed_is_downloaded(session: Session) -> None:
    shards = {name for name in session.files if name.startswith("model-")}
    assert {"config.json", "model.safetensors.index.json", *shards} <= session.downloaded
    assert not {"pytorch_model.bin", "original/a.safetensors", "README.md"} & session.downloaded


def test_progress_counts_bytes_to_the_end(session: Session) -> None:
    names = {"config.json", *(name for name in session.files if name.startswith("model"))}
    for spec, wanted in (("org/tiny", names), ("org/tiny:tiny.gguf", {"tiny.gguf"})):
        source, formats, calls = session.opened(spec)
        assert source.startswith(str(session.home))
        assert formats == "F32 (21)"
        size = sum(len(session.files[name]) for name in wanted)
        assert calls[-1] == (spec, size, size)
        assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_a_model_in_the_cache_opens_again_and_offline(session: Session) -> None:
    first = session.opened("org/tiny")[:2]
    assert session.opened("again")[:2] == first
    assert session.opened("cached")[:2] == first


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("org/tiny:other.gguf", "org/tiny:other.gguf: no such file in this repository"),
        ("org/tiny:x.bin", "org/tiny:x.bin: after the colon comes the name of a .gguf file"),
        (
            "org/empty",
            "org/empty: holds no config.json; for a GGUF file of it use org/empty:FILE.gguf",
        ),
        (
            "org/absent",
            "org/absent: no such model on the Hugging Face hub; for a private one: hf auth login",
        ),
        (
            "gated/model",
            "gated/model: is gated; accept its terms at https://huggingface.co/gated/model and log "
            "in with: hf auth login",
        ),
        (
            "unknown",
            "org/other: is not in the local cache and the Hugging Face hub cannot be reached",
        ),
        (
            "unreachable",
            "org/other: is not in the local cache and the Hugging Face hub cannot be reached",
        ),
    ],
)
def test_failures_are_one_line(session: Session, case: str, message: str) -> None:
    assert session.results[case] == message


def test_a_failing_hub_is_one_line(session: Session) -> None:
    text = session.results["broken/model"]
    assert isinstance(text, str)
    assert text.startswith("broken/model: ")
    assert "\n" not in text


def test_what_can_be_a_hub_id() -> None:
    assert all(is_hub_id(spec) for spec in ("a/b", "Qwen/Qwen2.5-0.5B", "org_1/x.y-z"))
    paths = ("", "a", "/a/b", "./a", "../a", "a/b/c", "~/a", "a/", "/b", "a b/c", "a/b:c", ".a/b")
    assert not any(is_hub_id(spec) for spec in paths)
    assert split_hub_id("a/b") == ("a/b", None)
    assert split_hub_id("a/b:c.gguf") == ("a/b", "c.gguf")


@pytest.mark.parametrize("repository", ["broken/model", "dropped/model"])
def test_one_file_is_given_up_as_soon_as_a_folder(tmp_path: Path, repository: str) -> None:
    """The hub library would ask again for half a minute; requests are counted, not seconds."""
    asked = {}
    for spec in (repository, f"{repository}:tiny.gguf"):
        with serving({}) as (address, requested):
            (text,) = probe(tmp_path, address, spec)
        assert isinstance(text, str)
        assert text.startswith(f"{spec}: ")
        assert "\n" not in text
        asked[spec] = len(requested)
    assert 1 <= asked[f"{repository}:tiny.gguf"] <= asked[repository] + 1


def test_one_file_of_the_cache_opens_offline(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    write_gguf(made / "tiny[1].gguf", llama_tensors())
    data = (made / "tiny[1].gguf").read_bytes()
    files = {"sub/tiny[1].gguf": data, "tiny1.gguf": b"GGUF"}
    spec = "org/parts:sub/tiny[1].gguf"
    with serving({"org/parts": files}) as (address, requested):
        (first,) = probe(tmp_path / "home", address, spec)
        assert not any("tiny1.gguf" in path for path in requested)
    assert isinstance(first, list)
    for offline in (True, False):
        cached, missing, outside = probe(
            tmp_path / "home",
            NOWHERE,
            spec,
            "org/parts:b.gguf",
            "org/parts:../x.gguf",
            offline=offline,
        )
        assert isinstance(cached, list)
        assert cached[:2] == first[:2]
        assert missing == (
            "org/parts:b.gguf: is not in the local cache and the Hugging Face hub cannot be reached"
        )
        assert isinstance(outside, str)
