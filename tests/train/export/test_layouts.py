"""Whose layout a checkpoint has."""

from __future__ import annotations

import json

import torch
from tiny_training import CONFIG, SHAPE, V

from outrider.train.export.checkpoint import export_checkpoint
from outrider.train.networks.network import new_network


def test_layouts(tmp_path):
    for kind, name in (("dspark", "Qwen3DSparkModel"), ("dflash", "DFlashDraftModel")):
        folder = tmp_path / kind
        export_checkpoint(new_network(kind, CONFIG, SHAPE), torch.arange(V), folder, "bf16")
        fields = json.loads((folder / "config.json").read_text())
        assert fields["architectures"] == [name]
        assert "outrider_quantization" not in fields
        assert fields["block_size"] == (4 if kind == "dspark" else 5)
