"""Configurations as files."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from tiny_training import SHAPE

from outrider.cli.main import main
from outrider.train.config import GenerateConfig, OptimConfig, ShapeConfig, TrainConfig
from outrider.train.config_file import load_config
from outrider.types.errors import DrafterError


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


def test_every_setting_is_printed_with_its_meaning(capsys, tmp_path):
    assert main(["train", "--show-config"]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "mine.json"
    path.write_text(printed)
    assert load_config(path) == TrainConfig()
    for cls in (TrainConfig, GenerateConfig, ShapeConfig, OptimConfig):
        for field in fields(cls):
            assert f'"//{field.name}": "' in printed, field.name
    assert '"//beta2": "AdamW\'s decay rates; beta1 is also Muon\'s momentum."' in printed
    path.write_text(printed.replace('"samples": 160000', '"samples": 7'))
    assert load_config(path).generate.samples == 7
    path.write_text('{"sampels": 1}')
    with pytest.raises(DrafterError, match="unknown field 'sampels'"):
        load_config(path)


def test_the_help_points_to_every_setting(capsys):
    assert main(["train", "--help"]) == 0
    assert "--show-config" in capsys.readouterr().out
