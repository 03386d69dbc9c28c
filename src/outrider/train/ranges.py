"""What every field of a training configuration may be, by its dotted name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from outrider.config.model import ModelConfig
from outrider.config.sizes import MAX_LAYERS, MAX_POSITIONS, MAX_ROWS, MAX_WIDTH
from outrider.train.config import ShapeConfig, TrainConfig
from outrider.types.errors import DrafterError
from outrider.types.lines import shown

#: Most of anything that is counted; the seeds of a run are derived from products with such counts.
MANY: Final = 2**31 - 1
#: Longest time, in seconds: centuries.
LONG: Final = 1e10
#: Largest rate, weight or temperature; far beyond what float32 can train with.
LARGE: Final = 1e6
#: Most user turns composed, rows of a block and answers in a row: memory is taken for all at once.
TURNS: Final = 10_000_000
BLOCK: Final = 1024
ANSWERS: Final = 4096


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, these included unless ``above`` or ``below`` says no."""

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return False
        return not (self.above and value == self.low) and not (self.below and value == self.high)

    def __str__(self) -> str:
        first, last = "(" if self.above else "[", ")" if self.below else "]"
        return f"{first}{self.low}, {self.high}{last}"


COUNT: Final = Range(1, MANY)
ANY: Final = Range(0, MANY)
SHARE: Final = Range(0.0, 1.0)
SECONDS: Final = Range(0.0, LONG)
WEIGHT: Final = Range(0.0, LARGE)
DECAY: Final = Range(0.0, 1.0, below=True)

#: The range of every number; a list's is that of its members.
RANGES: Final = {
    "heldout": ANY,
    "generate.samples": COUNT,
    "generate.seconds": SECONDS,
    "generate.batch": COUNT,
    "generate.length": Range(2, MAX_POSITIONS),
    "generate.user_tokens": COUNT,
    "generate.user_temperature": WEIGHT,
    "generate.user_min_p": SHARE,
    "generate.answer_temperature": WEIGHT,
    "generate.greedy_share": SHARE,
    "generate.free_share": SHARE,
    "generate.openers": Range(1, TURNS),
    "generate.short_share": SHARE,
    "generate.short_tokens": COUNT,
    "generate.max_turns": Range(1, ANSWERS),
    "generate.min_room": ANY,
    "generate.keep_loops": SHARE,
    "generate.min_supervised": ANY,
    "generate.seed": ANY,
    "generate.key_step": COUNT,
    "shape.layers": Range(1, MAX_LAYERS),
    "shape.intermediate_size": Range(0, MAX_ROWS),
    "shape.block": Range(1, BLOCK),
    "shape.taps": Range(-1, MAX_LAYERS),
    "shape.num_taps": Range(1, MAX_LAYERS),
    "shape.draft_vocab": Range(1, MAX_ROWS),
    "shape.markov_rank": Range(0, MAX_WIDTH),
    "optim.steps": ANY,
    "optim.seconds": SECONDS,
    "optim.rows": COUNT,
    "optim.anchors": COUNT,
    "optim.matrix_lr": WEIGHT,
    "optim.lr": WEIGHT,
    "optim.beta1": DECAY,
    "optim.beta2": DECAY,
    "optim.weight_decay": WEIGHT,
    "optim.warmup": SHARE,
    "optim.floor": SHARE,
    "optim.clip": Range(0.0, 1e30, above=True),
    "optim.ce_share": SHARE,
    "optim.ce_weight": WEIGHT,
    "optim.tv_weight": WEIGHT,
    "optim.confidence_weight": WEIGHT,
    "optim.decay": Range(0.0, LARGE, above=True),
    "optim.pace": SHARE,
    "optim.seed": ANY,
    "optim.log_every": COUNT,
    "optim.save_seconds": SECONDS,
    "optim.eval_seconds": SECONDS,
}


def check_ranges(config: TrainConfig, source: str = "") -> None:
    """Refuse values that no model could be trained with.

    Args:
        config: the configuration.
        source: what a message begins with, such as the file's name and a colon.

    Raises:
        DrafterError: one line that names the first such field, its value and its range.
    """
    for name, value in _leaves(config):
        if isinstance(value, str):
            _check_text(name, value, source)
            continue
        for number in value if isinstance(value, tuple) else (value,):
            if name in RANGES and number not in RANGES[name]:
                raise DrafterError(f"{source}{name} must be in {RANGES[name]}, not {shown(number)}")
    if not config.model:
        raise DrafterError(f"{source}model must name a model")
    if not config.optim.steps and not config.optim.seconds:
        raise DrafterError(f"{source}optim.seconds must be above 0 unless optim.steps is")
    rows = config.generate
    if rows.min_supervised >= rows.length:
        raise DrafterError(
            f"{source}generate.min_supervised must be below generate.length {rows.length}, "
            f"not {rows.min_supervised}"
        )


def check_target(config: TrainConfig, target: ModelConfig) -> None:
    """Refuse what does not fit the target.

    Raises:
        DrafterError: one line that names the field, its value and what would be right.
    """
    shape, layers = config.shape, target.num_layers
    if config.generate.length > target.max_position:
        raise DrafterError(
            f"generate.length must be at most the target's context {target.max_position}, "
            f"not {config.generate.length}"
        )
    if config.kind != "mtp" and len(set(shape.taps)) < len(shape.taps):
        raise DrafterError(f"shape.taps must name each layer once, not {list(shape.taps)}")
    # The usual number is for targets of any size: of a tiny one, layers are read more than once.
    most = max(layers, ShapeConfig.num_taps)
    if config.kind != "mtp" and not shape.taps and shape.num_taps > most:
        raise DrafterError(
            f"shape.num_taps must be at most the target's {layers} layers, not {shape.num_taps}"
        )
    if config.kind != "mtp" and not all(tap < layers for tap in shape.taps):
        raise DrafterError(
            f"shape.taps must be below the target's {layers} layers, not {list(shape.taps)}"
        )
    if not shape.warm_layers:
        return
    if config.kind != "mtp" and shape.layers > layers:
        raise DrafterError(
            f"shape.layers must be at most the target's {layers} for shape.warm_layers, "
            f"not {shape.layers}"
        )
    if shape.intermediate_size not in (0, target.intermediate_size):
        raise DrafterError(
            f"shape.intermediate_size must be 0 or the target's {target.intermediate_size} for "
            f"shape.warm_layers, not {shape.intermediate_size}"
        )


def _check_text(name: str, text: str, source: str) -> None:
    """Refuse text that is no path and no name."""
    try:
        sound = b"\0" not in text.encode()
    except UnicodeEncodeError:
        sound = False
    if not sound:
        raise DrafterError(
            f"{source}{name} must be text without null characters, not {shown(text)}"
        )


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any part
    """The values of a configuration by their dotted names."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value
