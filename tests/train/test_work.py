"""Work folders: a run goes on only with its own settings and with files that are whole."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from tiny_training import CONFIG, FAST, SHAPE, V, written_rows

from outrider.cli.main import main
from outrider.train import run
from outrider.train.config import GenerateConfig, OptimConfig, TrainConfig
from outrider.train.config_file import load_config
from outrider.train.data.chat_frame import with_prompts
from outrider.train.work import FREE, check_ownership
from outrider.types.errors import DrafterError

#: Another value of every field that may change.
OTHER = {
    "out": "elsewhere",
    "device": "cpu",
    "storage": "q4_1",
    "generate": replace(GenerateConfig(), key_step=32),
    "optim": OptimConfig(
        steps=9,
        seconds=8.0,
        attention="flex",
        compile=False,
        graphs=False,
        log_every=7,
        save_seconds=6.0,
        eval_seconds=5.0,
    ),
}


@pytest.fixture(autouse=True)
def tiny_target(target, monkeypatch):
    """Every model is the tiny target, whose conversations are there already."""

    @contextmanager
    def opened(name, progress):
        yield SimpleNamespace(config=CONFIG)

    monkeypatch.setattr(run, "open_model", opened)
    monkeypatch.setattr(run, "load_target", lambda checkpoint, device, progress: (target, None))


@pytest.fixture
def settings(target, tmp_path):
    """A configuration's file, in a folder whose ``w`` holds conversations."""
    config = TrainConfig(
        heldout=8,
        generate=GenerateConfig(length=32, samples=24),
        shape=replace(SHAPE, block=2),
        optim=replace(FAST, steps=3, eval_seconds=0.0),
    )
    path = tmp_path / "settings.json"
    path.write_text(config.to_json())
    rows = written_rows(target, 48, 1, 1.0)
    rows.greedy[-8:] = True
    (tmp_path / "w").mkdir()
    rows.save(tmp_path / "w" / "conversations-0.safetensors")
    return path


@pytest.fixture
def train(settings, tmp_path, capsys):
    """Run ``outrider train`` on the work folder ``w``; returns the status and what it said."""

    def command(*options):
        common = {"--config": settings, "--work": tmp_path / "w", "--out": tmp_path / "out"}
        common |= dict(zip(options[::2], options[1::2], strict=True))
        words = [str(word) for option in common.items() for word in option]
        status = main(["train", "--eval-prompts", "0", *words])
        return status, capsys.readouterr().err

    return command


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(found):
    status, said = found
    assert status == 2, said
    *before, error = said.splitlines()
    assert before in ([], [line for line in before if line.startswith("Needs about ")][:1])
    assert error.startswith("outrider: ")
    return error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--samples", 4000), "generate.samples 24, not 4000"),
        (("--prompts", "p5.txt"), "generate.prompts '', not 'p5.txt'"),
        (("--model", "other"), "model 'smollm2', not 'other'"),
        (("--kind", "mtp"), "kind 'dspark', not 'mtp'"),
    ],
)
def test_a_folder_belongs_to_one_run(options, named, train, tmp_path):
    assert train()[0] == 0
    before, out = contents(tmp_path / "w"), contents(tmp_path / "out")
    said = refused(train(*options))
    assert named in said
    assert str(tmp_path / "w") in said
    assert "another --work folder, or delete" in said
    assert contents(tmp_path / "w") == before
    assert contents(tmp_path / "out") == out
    assert refused(train("--out", tmp_path / "new", *options))
    assert not (tmp_path / "new").exists()
    assert train("--config", tmp_path / "w" / "config.json")[0] == 0


def test_any_field_of_the_data_the_shape_and_the_loss_belongs_to_it(tmp_path):
    config = TrainConfig(work=str(tmp_path))
    (tmp_path / "state.pt").touch()
    (tmp_path / "config.json").write_text(config.to_json())

    def names(value, prefix=""):
        for name, part in asdict(value).items():
            yield from (f"{name}.{key}" for key in part) if isinstance(part, dict) else [name]

    for name in sorted(set(names(config)) - FREE):
        *parts, last = name.split(".")
        owner = getattr(config, parts[0]) if parts else config
        other = replace(owner, **{last: "something else"})
        changed = replace(config, **{parts[0]: other}) if parts else other
        with pytest.raises(DrafterError, match=rf"with {name} .*, not 'something else'"):
            check_ownership(changed)
    check_ownership(replace(config, **OTHER))
    assert set(names(config)) >= FREE


def test_what_may_change_goes_on(train, tmp_path):
    assert train()[0] == 0
    fields = json.loads((tmp_path / "w" / "config.json").read_text())
    fields["optim"] |= {"steps": 5, "log_every": 1}
    (tmp_path / "longer.json").write_text(json.dumps(fields))
    longer = tmp_path / "longer.json"
    assert train("--config", longer, "--storage", "q4_1", "--out", tmp_path / "new")[0] == 0
    assert json.loads((tmp_path / "w" / "report.json").read_text())["steps"] == 5
    assert load_config(tmp_path / "w" / "config.json").storage == "q4_1"
    assert "Q4_1" in (tmp_path / "new" / "config.json").read_text()


def test_a_path_may_be_spelled_in_another_way(tmp_path):
    config = TrainConfig(work=str(tmp_path), model=str(tmp_path / "model"))
    (tmp_path / "state.pt").touch()
    (tmp_path / "config.json").write_text(config.to_json())
    check_ownership(replace(config, model=str(tmp_path / "x" / ".." / "model")))


def test_settings_of_a_run_that_left_nothing_may_change(tmp_path):
    config = TrainConfig(work=str(tmp_path))
    (tmp_path / "config.json").write_text(config.to_json())
    check_ownership(replace(config, kind="mtp"))


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, -1])
def test_a_cut_state(size, train, tmp_path):
    assert train()[0] == 0
    path = tmp_path / "w" / "state.pt"
    path.write_bytes(path.read_bytes()[:size])
    said = refused(train())
    assert str(path) in said
    assert "delete it to train anew" in said
    path.unlink()
    assert train()[0] == 0


@pytest.mark.parametrize(
    "state", [[], {}, {"network": {}}, {"network": {}, "optimisers": [], "history": {}}, 3]
)
def test_a_foreign_state(state, train, tmp_path):
    assert train()[0] == 0
    torch.save(state, tmp_path / "w" / "state.pt")
    assert "state.pt" in refused(train())


@pytest.mark.parametrize("size", [0, 7, 300, -1])
def test_cut_conversations(size, train, tmp_path):
    path = tmp_path / "w" / "conversations-0.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    said = refused(train())
    assert str(path) in said
    assert "delete its folder, or name another" in said


@pytest.mark.parametrize("fault", ["missing", "count", "type", "vocabulary", "length"])
def test_foreign_conversations(fault, target, train, tmp_path):
    rows = written_rows(target, 8, 1, 1.0)
    tensors = dict(rows.__dict__)
    if fault == "missing":
        del tensors["greedy"]
    elif fault == "count":
        tensors["greedy"] = tensors["greedy"][1:]
    elif fault == "type":
        tensors["ids"] = tensors["ids"].long()
    elif fault == "vocabulary":
        tensors["ids"] = torch.full_like(tensors["ids"], V)
    else:
        tensors |= {name: tensors[name][:, 1:].contiguous() for name in ("ids", "supervised")}
    path = tmp_path / "w" / "conversations-1.safetensors"
    save_file(tensors, path)
    assert str(path) in refused(train())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b'{"kind": 3}', b'{"new": 1}'])
def test_a_damaged_configuration(text, train, tmp_path):
    path = tmp_path / "w" / "config.json"
    path.write_bytes(text)
    said = refused(train())
    assert str(path) in said
    assert "another --work folder, or delete" in said
    assert path.read_bytes() == text


def test_a_state_without_its_configuration(train, tmp_path):
    assert train()[0] == 0
    (tmp_path / "w" / "config.json").unlink()
    assert "config.json: is missing" in refused(train())


@pytest.mark.parametrize("option", ["--work", "--out"])
@pytest.mark.parametrize("place", ["/proc/x", "file", "file/below"])
def test_folders_that_cannot_be_written(option, place, train, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "load_target", None)
    (tmp_path / "file").touch()
    folder = tmp_path / place
    said = refused(train(option, folder))
    assert f"{folder}: cannot be written to" in said
    assert not (tmp_path / "w" / "config.json").exists()


def test_no_gpu(train, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no CUDA GPU" in refused(train("--device", "cuda"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [b"caf\xe9\n", b"\xff\xfeH\0", b"\n", None])
def test_prompts_that_cannot_be_read(text, train, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "load_target", None)
    path = tmp_path / "prompts.txt"
    if text is not None:
        path.write_bytes(text)
        with pytest.raises(DrafterError):
            with_prompts(None, path, None)
    said = refused(train("--prompts", path, "--work", tmp_path / "new"))
    assert str(path) in said
    assert not (tmp_path / "new").exists()
