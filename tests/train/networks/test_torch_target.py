"""The target as plain torch."""

from __future__ import annotations

from tiny_training import CONFIG, torch_target


def test_target_shape_is_the_configurations():
    assert CONFIG.num_layers == len(torch_target().layers)
