"""Shapes of new drafters for a target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny_training import CONFIG, SHAPE

from outrider.train.networks.shapes import block_config, spread_taps
from outrider.types.errors import DrafterError


def test_taps():
    assert spread_taps(30, 5) == (1, 8, 14, 20, 27)
    assert spread_taps(24, 5) == (1, 6, 11, 16, 21)
    assert spread_taps(30, 1) == (15,)
    with pytest.raises(DrafterError, match="taps"):
        block_config(CONFIG, replace(SHAPE, taps=(1, 9)), "dspark")


def test_dflash_drafts_as_many_as_dspark():
    assert block_config(CONFIG, SHAPE, "dflash").max_draft == SHAPE.block
    assert block_config(CONFIG, SHAPE, "dspark").max_draft == SHAPE.block
