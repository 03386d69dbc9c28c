"""Training works: losses fall, real rounds accept, runs resume."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tiny_training import CONFIG, FAST, SHAPE, V, evaluated, trained, written_rows

from outrider.train.config import GenerateConfig, TrainConfig
from outrider.train.fitting.trainer import Trainer
from outrider.train.networks.heads import trimmed_head
from outrider.train.networks.network import new_network
from outrider.train.run import fit


def losses(trainer):
    return [entry.ce for entry in trainer.history.log]


def test_dspark_learns(target, dspark):
    network, trainer = dspark
    assert losses(trainer)[-1] < 0.6 * losses(trainer)[0]
    assert trainer.history.log[-1].tv > 0
    torch.manual_seed(0)
    before = evaluated(new_network("dspark", CONFIG, SHAPE), target)
    after = evaluated(network, target)
    assert before.tau < 1.3
    assert after.tau > 4.0
    assert after.positions[0] > 0.9


@pytest.mark.parametrize(
    ("kind", "optim", "least"),
    [
        ("mtp", FAST, 3.2),
        ("dflash", FAST, 3.0),
        ("dspark", replace(FAST, matrices="adamw", matrix_lr=5e-3), 2.0),
        ("dspark", replace(FAST, pace=0.5), 3.5),
    ],
)
def test_others_learn(kind, optim, least, target, tmp_path):
    shape = replace(SHAPE, block=3) if kind == "mtp" else SHAPE
    network, trainer = trained(kind, target, tmp_path, shape, optim)
    assert losses(trainer)[-1] < 0.8 * losses(trainer)[0]
    assert evaluated(network, target).tau > least


def test_confidence_estimates_acceptance(target, dspark):
    """Against the overlap of both distributions in the same rows, which is the chance to accept."""
    network, _ = dspark
    rows = written_rows(target, 16, 5, 1.0)
    ids, anchors = rows.ids.long(), torch.arange(4, 26).expand(16, -1)
    at = anchors[..., None] + torch.arange(SHAPE.block)
    previous = ids.gather(1, at.flatten(1)).view_as(at)
    head = trimmed_head(target, torch.arange(V))
    with torch.no_grad():
        states = target.states(ids, network.config.taps)
        hidden = network.rows(states, ids, anchors, head.embedding)
        sure = network.confidence(hidden, previous).sigmoid()
        q = network.logits(hidden, previous, head.weight).softmax(-1)
        p = target.logits(states.hidden).softmax(-1)[torch.arange(16)[:, None, None], at]
    overlap = torch.minimum(p, q).sum(-1)
    assert abs(float(sure.mean() - overlap.mean())) < 0.12
    assert float(torch.corrcoef(torch.stack([sure.flatten(), overlap.flatten()]))[0, 1]) > 0.2


def test_run_resumes(target, tmp_path):
    rows = written_rows(target, 128, 1, 1.0)
    head = trimmed_head(target, torch.arange(V))
    optim = replace(FAST, steps=40)

    def trainer():
        torch.manual_seed(0)
        network = new_network("dspark", CONFIG, SHAPE)
        return network, Trainer(network, target, head, rows, optim, tmp_path)

    first, begun = trainer()
    assert not begun.run(stop_after=1e-6)
    step = begun.history.step
    assert 0 < step < 40
    second, going_on = trainer()
    assert going_on.history.step == step
    for name, weight in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], weight), name
    assert going_on.run()
    assert going_on.history.step == 40
    assert len(going_on.history.log) > len(begun.history.log)


def test_fit_writes_everything(target, tmp_path):
    rows = written_rows(target, 160, 1, 1.0)
    rows.greedy[-16:] = True
    config = TrainConfig(
        out=str(tmp_path / "out"),
        work=str(tmp_path / "work"),
        heldout=16,
        generate=GenerateConfig(length=32),
        shape=replace(SHAPE, draft_vocab=32),
        optim=replace(FAST, steps=12, log_every=4, eval_seconds=0.0, ce_share=0.5),
    )
    (tmp_path / "work").mkdir()
    stages = []
    report = fit(target, rows, config, lambda label, done, total: stages.append(label))
    assert report.finished
    assert report.steps == 12
    assert report.samples == 144
    assert 0.3 < report.coverage < 1.0
    assert "Training" in stages
    written = {path.name for path in (tmp_path / "work").iterdir()}
    assert written >= {"log.jsonl", "state.pt", "report.json", "history.json", "training.png"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"config.json", "model.safetensors"}
    assert json.loads((tmp_path / "work" / "report.json").read_text())["steps"] == 12
    assert (tmp_path / "work" / "training.png").read_bytes().startswith(b"\x89PNG")
    assert report.evaluation.lines()[0].startswith("all")
    assert fit(target, rows, replace(config, storage="q4_1")).steps == 12
    assert "Q4_1" in (tmp_path / "out" / "config.json").read_text()
