"""Named pipes, devices, sockets, folders and dead links where a file belongs."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import LLAMA, llama_tensors, write_folder, write_gguf

from outrider.cli.bench.prompts import read_prompts
from outrider.loaders.files import kind_of
from outrider.loaders.gguf import GgufCheckpoint
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.loaders.open import open_model
from outrider.loaders.safetensors import TensorFolder
from outrider.train.config_file import load_config
from outrider.train.prompts.prompt_file import read_prompts as read_training_prompts
from outrider.types.errors import ModelError, OutriderError


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most about 100 characters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def dead_link(path: Path) -> None:
    path.symlink_to(path.with_name("gone"))


MAKERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (pipe, "a named pipe"),
    "device": (device, "a device"),
    "folder": (folder, "a folder"),
    "socket": (unix_socket, "a socket"),
    "dead link": (dead_link, "a link that leads nowhere"),
}
INSIDE = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
#: Everything that opens one file a user names.
OPENERS: dict[str, Callable[[Path], object]] = {
    "gguf": GgufCheckpoint,
    "model": lambda path: open_model(str(path)),
    "prompts": read_prompts,
    "training prompts": read_training_prompts,
    "training configuration": load_config,
}


@pytest.fixture(params=list(MAKERS))
def thing(request: pytest.FixtureRequest) -> tuple[Callable[[Path], None], str]:
    return MAKERS[request.param]


def refusal(open_it: Callable[[], object]) -> str:
    with pytest.raises(OutriderError) as caught:
        open_it()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("opener", list(OPENERS))
def test_a_path_to_one_file(
    tmp_path: Path, thing: tuple[Callable[[Path], None], str], opener: str
) -> None:
    make, kind = thing
    path = tmp_path / "a.gguf"
    make(path)
    message = refusal(lambda: OPENERS[opener](path))
    if not (opener == "model" and kind == "a folder"):
        assert kind in message
    assert str(path) in message


@pytest.mark.parametrize("name", INSIDE)
def test_a_file_inside_a_folder(
    tmp_path: Path, thing: tuple[Callable[[Path], None], str], name: str
) -> None:
    make, kind = thing
    place = write_folder(tmp_path / "m", LLAMA, llama_tensors())
    (place / name).unlink(missing_ok=True)
    make(place / name)
    for opener in (HuggingFaceCheckpoint, TensorFolder, lambda path: open_model(str(path))):
        message = refusal(lambda opener=opener: opener(place))
        assert f"{place / name}: " in message
        assert kind in message


def test_one_of_several_tensor_files(
    tmp_path: Path, thing: tuple[Callable[[Path], None], str]
) -> None:
    make, kind = thing
    place = write_folder(tmp_path / "m", LLAMA, llama_tensors(), shards=3)
    shard = place / "model-00002-of-00003.safetensors"
    shard.unlink()
    make(shard)
    assert kind in refusal(lambda: HuggingFaceCheckpoint(place))
    (place / "model.safetensors.index.json").unlink()
    assert kind in refusal(lambda: HuggingFaceCheckpoint(place))


def test_links_to_files_are_files(tmp_path: Path) -> None:
    """The hub's cache is made of them."""
    real = write_folder(tmp_path / "real", LLAMA, llama_tensors())
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in real.iterdir():
        (linked / path.name).symlink_to(path)
    assert HuggingFaceCheckpoint(linked).config == HuggingFaceCheckpoint(real).config
    file = write_gguf(tmp_path / "m.gguf", llama_tensors())
    (tmp_path / "link").symlink_to(file)
    assert open_model(str(tmp_path / "link")).config == GgufCheckpoint(file).config


@pytest.mark.parametrize(
    "spec", ["x" * 5000, "a/" + "b" * 300, "a\0b", "~nobody-here/x", "/dev/null"]
)
def test_names_that_no_path_can_have(spec: str) -> None:
    message = refusal(lambda: open_model(spec))
    assert len(message) < 500 or spec in message


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert kind_of(tmp_path) == "a folder"
    assert kind_of(tmp_path / "f") == "a file"
    assert kind_of(tmp_path / "none") is None
    assert kind_of(tmp_path / "f" / "under") is None
    assert kind_of(Path("/dev/null")) == "a device"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_folder_that_may_not_be_looked_into(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "m", LLAMA, llama_tensors())
    place.chmod(stat.S_IRUSR)
    try:
        with pytest.raises(ModelError, match="cannot be read: Permission denied"):
            HuggingFaceCheckpoint(place)
    finally:
        place.chmod(stat.S_IRWXU)
        shutil.rmtree(place)
