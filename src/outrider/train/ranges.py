"""What each setting of a training run may be, checked before anything is loaded or written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from outrider.types.errors import DrafterError

#: Largest counts that mean anything, of things and of tokens of a row.
_COUNT: Final = 2**31 - 1
_LENGTH: Final = 2**20
_SHARE: Final = (0.0, 1.0)
_FOREVER: Final = 1e12

#: Lowest and highest value by the name of the part and of its field.
RANGES: Final[Mapping[str, Mapping[str, tuple[float, float]]]] = {
    "TrainConfig": {"heldout": (0, _COUNT)},
    "GenerateConfig": {
        "samples": (1, _COUNT),
        "seconds": (0.0, _FOREVER),
        "batch": (1, _LENGTH),
        "length": (2, _LENGTH),
        "user_tokens": (1, _LENGTH),
        "user_temperature": (0.0, 100.0),
        "user_min_p": _SHARE,
        "answer_temperature": (0.0, 100.0),
        "greedy_share": _SHARE,
        "free_share": _SHARE,
        "openers": (1, _COUNT),
        "short_share": _SHARE,
        "short_tokens": (1, _LENGTH),
        "max_turns": (1, _LENGTH),
        "min_room": (1, _LENGTH),
        "keep_loops": _SHARE,
        "min_supervised": (0, _LENGTH),
        "seed": (0, 2**63 - 1),
        "key_step": (1, _LENGTH),
    },
    "ShapeConfig": {
        "layers": (1, 1024),
        "intermediate_size": (0, 2**24),
        "block": (1, 256),
        "taps": (-1, 2**16),
        "num_taps": (1, 256),
        "draft_vocab": (1, _COUNT),
        "markov_rank": (0, 2**16),
    },
    "OptimConfig": {
        "steps": (0, _COUNT),
        "seconds": (0.0, _FOREVER),
        "rows": (1, _LENGTH),
        "anchors": (1, _LENGTH),
        "matrix_lr": (0.0, 10.0),
        "lr": (0.0, 10.0),
        "beta1": (0.0, 0.999999),
        "beta2": (0.0, 0.999999),
        "weight_decay": (0.0, 10.0),
        "warmup": _SHARE,
        "floor": _SHARE,
        "clip": (1e-12, 1e12),
        "ce_share": _SHARE,
        "ce_weight": (0.0, 1e6),
        "tv_weight": (0.0, 1e6),
        "confidence_weight": (0.0, 1e6),
        "decay": (1e-6, 1e6),
        "pace": _SHARE,
        "seed": (0, 2**63 - 1),
        "log_every": (1, _COUNT),
        "save_seconds": (0.0, _FOREVER),
        "eval_seconds": (0.0, _FOREVER),
    },
}


def check_range(part: str, name: str, value: object, where: str) -> None:
    """Refuse a number, or a list of numbers, out of range; NaN is out of every range.

    Args:
        part: name of the configuration's class.
        name: the field.
        value: what it is set to; what is no number has no range.
        where: the field's place, for the message.

    Raises:
        DrafterError: it names the place, the range and the value.
    """
    bounds = RANGES.get(part, {}).get(name)
    if bounds is None:
        return
    low, high = bounds
    for number in value if isinstance(value, tuple) else (value,):
        inside = isinstance(number, int | float) and math.isfinite(number) and low <= number <= high
        if not inside:
            raise DrafterError(f"{where}: must be in [{low:g}, {high:g}], not {number!r}")
