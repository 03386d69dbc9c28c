"""Confidences scaled by what they kept."""

from __future__ import annotations

import random

from outrider.draft_length.calibration import Calibration


def test_scales_what_confidences_promise() -> None:
    luck, calibration = random.Random(1), Calibration()
    assert calibration.chances([0.8, 0.5]) == [0.8, 0.4]
    for _ in range(2000):
        accepted = 0
        while accepted < 4 and luck.random() < 0.45:
            accepted += 1
        calibration.record([0.9] * 4, accepted)
    first, second = calibration.chances([0.9, 0.9])
    assert abs(first - 0.45) < 0.06
    assert abs(second - first * first) < 1e-9
    for _ in range(2000):
        calibration.record([0.5] * 4, 4)
    assert calibration.chances([0.9]) == [1.0]
