"""Labels and anchors of blocks."""

from __future__ import annotations

import torch

from outrider.train.fitting.batches import Batch, draw_anchors, labels_of


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
