"""What block rows see, against a plain restatement."""

from __future__ import annotations

import pytest
import torch

from outrider.train.networks.masks import block_mask


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
