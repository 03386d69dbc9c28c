"""Finished checkpoints stored anew."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_round_trip import engine_drafts, random_network
from tiny_training import SHAPE, V

from outrider.train.export.checkpoint import export_checkpoint, stored_weights
from outrider.train.export.convert import convert
from outrider.types.errors import DrafterError

KINDS = ("dspark", "mtp")


def written(folder, kind, storage):
    network = random_network(kind, replace(SHAPE, block=3))
    export_checkpoint(network, torch.arange(V), folder, storage)
    return network


def same_files(one, other):
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert torch.equal(tensor, second[name]), name
    texts = [json.loads((folder / "config.json").read_text()) for folder in (one, other)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("storage", ["bf16", "q8_0", "q4_1"])
@pytest.mark.parametrize("kind", KINDS)
def test_as_if_exported_so(kind, storage, tmp_path):
    """From Q8_0, the same as the exporter writes from the weights that Q8_0 left."""
    network = written(tmp_path / "from", kind, "q8_0")
    network.load_state_dict(stored_weights(tmp_path / "from", network))
    export_checkpoint(network, torch.arange(V), tmp_path / "exported", storage)
    convert(tmp_path / "from", tmp_path / "to", storage)
    same_files(tmp_path / "to", tmp_path / "exported")


@pytest.mark.parametrize("kind", KINDS)
def test_floats_to_4_bits(kind, tmp_path):
    """From bfloat16, as others publish; it drafts like its weights as floats."""
    network = written(tmp_path / "from", kind, "bf16")
    convert(tmp_path / "from", tmp_path / "to", "q4_1")
    prefix = "mtp." if kind == "mtp" else ""
    weights = stored_weights(tmp_path / "to", network)
    floats = {prefix + name: weight.contiguous() for name, weight in weights.items()}
    d2t = load_file(tmp_path / "to" / "model.safetensors")["d2t"]
    (tmp_path / "floats").mkdir()
    save_file({**floats, "d2t": d2t}, tmp_path / "floats" / "model.safetensors")
    text = (tmp_path / "from" / "config.json").read_text()
    (tmp_path / "floats" / "config.json").write_text(text)
    ids, anchors = torch.randint(1, V, (40,)), [3, 20, 33]
    drafts = engine_drafts(tmp_path / "to", ids, anchors, network)
    assert drafts == engine_drafts(tmp_path / "floats", ids, anchors, network)
    assert len({tuple(draft) for draft in drafts}) > 1


def test_rows_that_do_not_fill_blocks_stay_floats(tmp_path):
    written(tmp_path / "from", "dspark", "bf16")
    tensors = load_file(tmp_path / "from" / "model.safetensors")
    odd = {"own.fc.weight": torch.randn(3, 40), "own.kernel": torch.randn(2, 32, 32)}
    save_file({**tensors, **odd}, tmp_path / "from" / "model.safetensors")
    convert(tmp_path / "from", tmp_path / "to", "q4_1")
    found = load_file(tmp_path / "to" / "model.safetensors")
    for name, tensor in odd.items():
        assert torch.equal(found[name], tensor)


def refusal(folder, out):
    with pytest.raises(DrafterError) as caught:
        convert(folder, out, "q4_1")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refusals(tmp_path):
    written(tmp_path / "from", "dspark", "q4_1")
    message = refusal(tmp_path / "from", tmp_path / "to")
    assert "is stored as Q4_1" in message
    assert not (tmp_path / "to").exists()
    assert "another folder" in refusal(tmp_path / "from", tmp_path / "from")
    assert "config.json" in refusal(tmp_path / "nowhere", tmp_path / "to")


@pytest.mark.parametrize("declared", [None, {"format": "Q8_0"}])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_not_what_is_declared(kind, declared, tmp_path):
    written(tmp_path / "from", kind, "q4_1")
    path = tmp_path / "from" / "config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "outrider_quantization": declared}))
    message = refusal(tmp_path / "from", tmp_path / "to")
    assert str(tmp_path / "from") in message
    assert ("bytes a row" in message) == (declared is not None)
    assert not (tmp_path / "to").exists()


def test_nowhere_to_write(tmp_path):
    written(tmp_path / "from", "mtp", "q8_0")
    (tmp_path / "file").touch()
    assert "cannot be written to" in refusal(tmp_path / "from", tmp_path / "file")


def test_command(tmp_path):
    written(tmp_path / "from", "mtp", "q8_0")
    command = [sys.executable, "-m", "outrider.train.export.convert"]
    paths = [str(tmp_path / "from"), str(tmp_path / "to")]
    subprocess.run([*command, *paths], check=True)
    convert(tmp_path / "from", tmp_path / "function", "q4_1")
    same_files(tmp_path / "to", tmp_path / "function")
    twice = subprocess.run(
        [*command, paths[1], paths[0]], capture_output=True, text=True, check=False
    )
    assert twice.returncode == 2
    assert "is stored as Q4_1" in twice.stderr
