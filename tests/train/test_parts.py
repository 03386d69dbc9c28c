"""Masks, labels, losses, walks, optimisers and configurations against plain restatements."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_training import CONFIG, SHAPE, V

from outrider.train.config import GenerateConfig, OptimConfig, TrainConfig
from outrider.train.config_file import load_config
from outrider.train.export.checkpoint import export_checkpoint
from outrider.train.fitting.batches import Batch, draw_anchors, labels_of
from outrider.train.fitting.evaluation import accepted_counts, walk
from outrider.train.fitting.loss import (
    Teacher,
    distances,
    pace_weights,
    position_weights,
    weighted_mean,
)
from outrider.train.fitting.optimiser import orthogonalise, schedule
from outrider.train.networks.masks import block_mask
from outrider.train.networks.network import new_network
from outrider.train.networks.shapes import block_config, spread_taps
from outrider.types.errors import DrafterError


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_block_mask(window, causal):
    anchors, rows, length = torch.tensor([[2, 5, 9]]), 3, 12
    mask = block_mask(anchors, rows, length, window, causal)[0, 0]
    for query in range(9):
        block, row = divmod(query, rows)
        position = int(anchors[0, block]) + row
        for key in range(length + 9):
            if key < length:
                seen = key < anchors[0, block] and (window is None or position - key < window)
            else:
                other, column = divmod(key - length, rows)
                seen = other == block and (not causal or column <= row)
                seen = seen and (window is None or abs(column - row) < window)
            assert bool(mask[query, key]) == bool(seen), (query, key)


def test_labels():
    ids = torch.arange(100, 112)[None]
    supervised = torch.zeros(1, 12, dtype=torch.bool)
    supervised[0, 3:8] = True
    supervised[0, 9:] = True
    batch = Batch(ids, supervised, torch.tensor([[2, 4, 9, 10]]))
    labels = labels_of(batch, 3)
    assert labels.tokens[0, 1].tolist() == [105, 106, 107]
    assert labels.previous[0, 1].tolist() == [104, 105, 106]
    assert labels.at[0, 1].tolist() == [4, 5, 6]
    live = [[False] * 3, [True] * 3, [True, True, False], [True, False, False]]
    assert labels.live[0].tolist() == live
    anchors = draw_anchors(supervised, 6)
    assert set(anchors[0].tolist()) == {3, 4, 5, 6, 9, 10}
    assert anchors[0].tolist() == sorted(anchors[0].tolist())


def test_distances_over_the_whole_vocabulary():
    torch.manual_seed(0)
    size, kept = 12, torch.tensor([1, 4, 5, 9])
    target, draft = torch.randn(3, size) * 2, torch.randn(5, 4)
    teacher = Teacher(target[:, kept], target.logsumexp(-1))
    labels, at = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([0, 1, 2, 0, 1])
    ce, tv = distances(draft, labels, teacher, at)
    wide = torch.full((5, size), -torch.inf)
    wide[:, kept] = draft
    p, q = target.softmax(-1)[at], wide.softmax(-1)
    assert torch.allclose(tv, 0.5 * (p - q).abs().sum(-1), atol=1e-5)
    assert torch.allclose(tv, 1 - torch.minimum(p, q).sum(-1), atol=1e-5)
    assert torch.allclose(ce, -draft.log_softmax(-1).gather(1, labels[:, None])[:, 0])


def test_weights():
    live = torch.tensor([[True, True, False]])
    weights = position_weights(live, 4.0)
    assert torch.allclose(weights, torch.tensor([[1.0, math.exp(-0.25), 0.0]]))
    mean = weighted_mean(torch.tensor([[2.0, 2.0, 99.0]]), weights)
    assert float(mean) == pytest.approx(2.0)
    assert float(weighted_mean(torch.ones(2), torch.zeros(2))) == 0.0


def test_pace_is_the_gradient_of_the_accepted_length():
    torch.manual_seed(0)
    log_accepted = torch.rand(3, 4).log().requires_grad_()
    live = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    length = (log_accepted.exp() * live).cumprod(-1).sum()
    length.backward()
    weights = pace_weights(log_accepted.detach().exp(), live, 1.0)
    assert torch.allclose(4 * weights, log_accepted.grad, atol=1e-6)
    assert (weights[~live] == 0).all()
    slower = pace_weights(torch.zeros(1, 4), torch.ones(1, 4, dtype=torch.bool), 0.5)
    assert torch.allclose(4 * slower, torch.tensor([[15.0, 7.0, 3.0, 1.0]]) / 16)


def test_accepted_counts():
    ids = torch.tensor([[5, 6, 7, 8]])
    drafts = torch.tensor([[[6, 7], [7, 9], [8, 8], [1, 1]]])
    assert accepted_counts(drafts, ids).tolist() == [[2, 1, 1, 0]]


def test_walk_counts_as_the_engine_does():
    # Tokens 2..9 are an answer; 9 ends it. With the tip at 2, two drafts hold: 3, 4; bonus 5.
    accepted = [9, 9, 2, 9, 9, 0, 3, 9, 9, 9, 9]
    answer = [False, False, *[True] * 8, False]
    ended = [False] * 9 + [True, False]
    telemetry = walk(accepted, answer, ended, 3)
    # Rounds start at 2 (2 kept), 5 (0 kept) and 6 (7, 8, 9 kept; 9 ends the answer: no bonus).
    assert telemetry.rounds == 3
    assert telemetry.accepted == 2 + 0 + 2
    assert telemetry.acceptance_length == pytest.approx(7 / 3)
    unfinished = walk(accepted, answer, [False] * 11, 3)
    assert unfinished.rounds == 2


def test_orthogonalised_matrices():
    torch.manual_seed(0)
    for shape in ((3, 24, 40), (2, 40, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_schedule():
    assert schedule(0.02, 0.04, 0.1) == pytest.approx(0.5)
    assert schedule(0.04, 0.04, 0.1) == pytest.approx(1.0)
    assert schedule(1.0, 0.04, 0.1) == pytest.approx(0.1)
    rates = [schedule(x / 50, 0.04, 0.1) for x in range(2, 51)]
    assert rates == sorted(rates, reverse=True)


def test_taps():
    assert spread_taps(30, 5) == (1, 8, 14, 20, 27)
    assert spread_taps(24, 5) == (1, 6, 11, 16, 21)
    assert spread_taps(30, 1) == (15,)
    with pytest.raises(DrafterError, match="taps"):
        block_config(CONFIG, replace(SHAPE, taps=(1, 9)), "dspark")


def test_dflash_drafts_as_many_as_dspark():
    assert block_config(CONFIG, SHAPE, "dflash").max_draft == SHAPE.block
    assert block_config(CONFIG, SHAPE, "dspark").max_draft == SHAPE.block


def test_layouts(tmp_path):
    for kind, name in (("dspark", "Qwen3DSparkModel"), ("dflash", "DFlashDraftModel")):
        folder = tmp_path / kind
        export_checkpoint(new_network(kind, CONFIG, SHAPE), torch.arange(V), folder, "bf16")
        fields = json.loads((folder / "config.json").read_text())
        assert fields["architectures"] == [name]
        assert "outrider_quantization" not in fields
        assert fields["block_size"] == (4 if kind == "dspark" else 5)


def test_configuration_round_trip(tmp_path):
    config = TrainConfig(
        kind="mtp",
        storage="bf16",
        generate=GenerateConfig(samples=7, seconds=1.5),
        shape=replace(SHAPE, taps=(1, 2)),
        optim=OptimConfig(matrices="adamw"),
    )
    path = tmp_path / "config.json"
    path.write_text(config.to_json())
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kinds": "dspark"}', "unknown field 'kinds'"),
        ('{"kind": "eagle"}', "kind: must be one of"),
        ('{"optim": {"rows": "many"}}', "optim: rows: must be int"),
        ('{"optim": {"rows": true}}', "optim: rows: must be int"),
        ('{"shape": {"taps": [1.5]}}', "list of integers"),
        ('{"generate": 3}', "JSON object"),
        ("{", "Expecting"),
    ],
)
def test_configuration_faults(text, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(DrafterError, match=message):
        load_config(path)


def test_shipped_configurations_load():
    folder = Path(__file__).parents[2] / "dev" / "training"
    kinds = {load_config(path).kind for path in sorted(folder.glob("smollm2-*.json"))}
    assert kinds == {"dspark", "mtp"}
