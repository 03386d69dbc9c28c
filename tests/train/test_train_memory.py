"""Runs fit into memory and disk, or are refused in one line before anything is written."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_training import FRAME, SHAPE, SMALL, V, torch_target, written_rows

from outrider.cli.main import main
from outrider.config.memory import Memory
from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.train import memory
from outrider.train.config import GenerateConfig, OptimConfig, TrainConfig
from outrider.train.data import generation
from outrider.train.data.generation import generate
from outrider.train.memory import GIB, estimate, memory_faults, plan
from outrider.train.run import fit
from outrider.types.errors import DrafterError

CPU = torch.device("cpu")
#: The shape of SmolLM2-135M.
SMOL = ModelConfig(
    architecture="llama",
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    rms_eps=1e-5,
    max_position=8192,
    rotary=RotaryConfig(),
    tied=True,
    qkv_bias=False,
    o_bias=False,
    qk_norm=False,
    windows=(None,) * 30,
    eos_ids=(2,),
)


@pytest.fixture
def free(monkeypatch):
    """Set how much memory is free."""

    def setting(count):
        monkeypatch.setattr(Memory, "read", lambda: Memory(int(count), int(count)))

    return setting


def run_of(tmp_path, **changes):
    return TrainConfig(work=str(tmp_path / "w"), **changes)


def test_estimates_of_a_known_run(tmp_path):
    """Measured for SmolLM2: 1.7 GB at one conversation a step, 2.2 GB at two."""
    config = run_of(tmp_path, generate=GenerateConfig(samples=16))
    need = estimate(SMOL, config)
    assert need.written_row >= 2 * 30 * 3 * 64 * 512 * 4, "keys and values"
    assert 1.7e9 < need.peak(0, 1) < 2.2e9
    assert 2.2e9 < need.peak(0, 2) < 2.8e9
    whole = estimate(SMOL, run_of(tmp_path))
    assert whole.peak(2048, 1) > 45 * GIB, "2048 rows, as was once allocated for 8"
    assert whole.disk > 160_000 * 512 * 5


def test_batches_are_bounded_by_samples(tmp_path, free):
    free(1e15)
    config = run_of(tmp_path, generate=GenerateConfig(samples=8))
    for device in (CPU, torch.device("cuda")):
        fitted = plan(SMOL, config, device, write=True)
        assert (fitted.config.generate.batch, fitted.config.optim.rows) == (8, 8)
    assert fitted.config.generate.samples == 8


def test_batches_are_bounded_by_memory(tmp_path, free):
    config = run_of(tmp_path)
    need = estimate(SMOL, config)
    free(16 * GIB)
    fitted = plan(SMOL, config, CPU, write=True)
    written, trained = fitted.config.generate.batch, fitted.config.optim.rows
    assert 100 < written < 2048
    assert 4 < trained < 64
    room = memory.SHARE * 16 * GIB
    assert need.peak(written, 0) <= room < need.peak(written + 1, 0)
    assert need.peak(0, trained) <= room < need.peak(0, trained + 1)
    assert f"{trained} in a step (64 do not fit)" in fitted.line
    assert "GiB of memory" in fitted.line
    free(1e15)
    roomy = plan(SMOL, config, CPU, write=True)
    assert (roomy.config.generate.batch, roomy.config.optim.rows) == (2048, 64)
    assert "do not fit" not in roomy.line


def test_a_gpu_bounds_its_batches_itself(tmp_path, free):
    free(0)
    fitted = plan(SMOL, run_of(tmp_path), torch.device("cuda"), write=True)
    assert fitted.config == run_of(tmp_path)


@pytest.mark.parametrize("room", [0, 1 * GIB])
def test_what_cannot_fit_is_refused_by_name(tmp_path, free, room):
    free(room)
    with pytest.raises(DrafterError, match=r"at least 3\.\d GiB .* are free") as caught:
        plan(SMOL, run_of(tmp_path), CPU, write=True)
    named = ("generate.length", "optim.anchors", "shape.draft_vocab")
    assert all(name in str(caught.value) for name in named)


def test_a_long_context_is_refused_for_what_judging_takes(tmp_path, free):
    free(64 * GIB)
    config = run_of(tmp_path, generate=GenerateConfig(length=8192))
    with pytest.raises(DrafterError, match=r"generate\.length"):
        plan(SMOL, config, CPU, write=True)


def test_a_disk_that_is_too_small_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_free_disk", lambda folder: 1 << 20)
    with pytest.raises(DrafterError, match=r"of disk, and 0\.0 GiB are free") as caught:
        plan(SMOL, run_of(tmp_path), torch.device("cuda"), write=True)
    assert str(tmp_path / "w") in str(caught.value)


def test_nothing_is_written_before_a_refusal(tmp_path, free, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    free(0)
    assert main(["train", "--out", "out", "--device", "cpu", "--samples", "8"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "of memory" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("samples", "room", "rows"), [(3, 1e15, 3), (24, 1e15, 12), (24, 0, 1)])
def test_the_decoder_has_as_many_rows_as_are_written(samples, room, rows, free, monkeypatch):
    free(room)
    made = []
    writer = generation.ConversationWriter

    def spy(target, frame, config, *, fast):
        made.append(config.batch)
        return writer(target, frame, config, fast=fast)

    monkeypatch.setattr(generation, "ConversationWriter", spy)
    config = replace(SMALL, samples=samples, length=24, min_supervised=0)
    assert len(generate(torch_target(), FRAME, config)) >= samples
    assert made == [rows]


@pytest.mark.parametrize(("count", "training"), [(4, 3), (8, 6), (2, 2), (40, 32)])
def test_a_quarter_is_held_out_at_most(count, training, target, tmp_path):
    rows = written_rows(target, count, 1, 0.0)
    config = TrainConfig(
        out=str(tmp_path / "out"),
        work=str(tmp_path / "work"),
        heldout=8,
        generate=GenerateConfig(length=32),
        shape=replace(SHAPE, draft_vocab=V),
        optim=OptimConfig(steps=1, rows=4, anchors=4, eval_seconds=1e9),
    )
    (tmp_path / "work").mkdir()
    report = fit(target, rows, config)
    assert report.finished
    assert report.samples == training
    assert (report.evaluation.overall.rounds > 0) == (training < count)


def test_no_conversations_are_an_error(target, tmp_path):
    rows = written_rows(target, 1, 1, 0.0).select(torch.zeros(1, dtype=torch.bool))
    with pytest.raises(DrafterError, match="no conversations"):
        fit(target, rows, run_of(tmp_path))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 7 bytes"
        ),
    ],
)
def test_memory_that_runs_out_is_one_line(error):
    wanted = r"memory ran out; lower generate\.batch"
    with pytest.raises(DrafterError, match=wanted) as caught, memory_faults():
        raise error
    assert "\n" not in str(caught.value)


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match="other"), memory_faults():
        raise RuntimeError("other")


# -- settings
