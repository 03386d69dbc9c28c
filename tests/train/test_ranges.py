"""Values of a training configuration that are refused, before anything is loaded or written."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from tiny_training import CONFIG, FAST, FRAME, SHAPE, SMALL, V, torch_target, written_rows

from outrider.cli.main import main
from outrider.train import run
from outrider.train.config import GenerateConfig, ShapeConfig, TrainConfig
from outrider.train.config_file import load_config
from outrider.train.data.generation import generate
from outrider.train.ranges import RANGES, check_ranges, check_target
from outrider.types.errors import DrafterError


def leaves(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def written(path, name, value):
    """A file that sets one field by its dotted name."""
    *parts, last = name.split(".")
    values = {last: value}
    for part in reversed(parts):
        values = {part: values}
    path.write_text(json.dumps(values))
    return path


def test_every_number_has_a_range_that_its_default_is_in():
    numbers = {
        name: value
        for name, value in leaves(asdict(TrainConfig()))
        if isinstance(value, int | float | tuple) and not isinstance(value, bool)
    }
    assert set(RANGES) == set(numbers)
    check_ranges(TrainConfig())


#: Values that stand for a kind of fault each; more follow from the ranges themselves.
REFUSED = [
    ("generate.samples", -5, "must be in [1, 2147483647], not -5"),
    ("generate.samples", 0, "must be in [1, 2147483647], not 0"),
    ("generate.length", -1, "must be in [2, 268435456], not -1"),
    ("generate.length", 0, "must be in [2, 268435456], not 0"),
    ("generate.length", 2**62, "must be in [2, 268435456], not 4611686018427387904"),
    ("generate.user_min_p", 1.5, "must be in [0.0, 1.0], not 1.5"),
    ("generate.seed", -1, "must be in [0, 2147483647], not -1"),
    ("shape.layers", -1, "must be in [1, 4096], not -1"),
    ("shape.layers", 0, "must be in [1, 4096], not 0"),
    ("shape.block", 0, "must be in [1, 1024], not 0"),
    ("shape.taps", [1, -2], "must be in [-1, 4096], not -2"),
    ("shape.taps", [10**9], "must be in [-1, 4096], not 1000000000"),
    ("shape.draft_vocab", 0, "must be in [1, 67108864], not 0"),
    ("optim.anchors", 0, "must be in [1, 2147483647], not 0"),
    ("optim.beta1", 1.0, "must be in [0.0, 1.0), not 1.0"),
    ("optim.clip", 0, "must be in (0.0, 1e+30], not 0.0"),
    ("optim.decay", 0.0, "must be in (0.0, 1000000.0], not 0.0"),
    ("optim.lr", math.nan, "must be in [0.0, 1000000.0], not nan"),
    ("optim.seconds", math.inf, "must be in [0.0, 10000000000.0], not inf"),
    ("optim.seconds", 0.0, "must be above 0 unless optim.steps is"),
    ("heldout", -1, "must be in [0, 2147483647], not -1"),
    ("model", "", "must name a model"),
    ("data", "a\0b", "must be text without null characters, not 'a\\x00b'"),
    ("generate.prompts", "\ud800", "must be text without null characters, not '\\ud800'"),
    ("generate.min_supervised", 512, "must be below generate.length 512, not 512"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_what_no_model_can_be_trained_with_is_refused(name, value, message, tmp_path):
    path = written(tmp_path / "c.json", name, value)
    with pytest.raises(DrafterError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {name} {message}"


@pytest.mark.parametrize("name", sorted(RANGES))
def test_a_range_ends_where_it_says(name, tmp_path):
    """A step beyond each end is refused, as is what is no finite number."""
    span = RANGES[name]
    whole = isinstance(span.low, int)
    beyond = [span.low - 1, span.high + 1] if whole else [-1e-6, span.high * 1.01, 1e308]
    beyond += [] if whole else [math.nan, math.inf, -math.inf]
    beyond += [span.low] * span.above + [span.high] * span.below
    for value in beyond:
        listed = [value] if name == "shape.taps" else value
        with pytest.raises(DrafterError, match=rf"c\.json: {name} must be in [\[(]"):
            load_config(written(tmp_path / "c.json", name, listed))
    for value in (span.low, span.high):
        assert (value in span) == (value not in beyond)


def test_a_number_beyond_every_float_and_a_nest_without_end_are_refused(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(f'{{"optim": {{"lr": 1{"0" * 400}}}}}')
    with pytest.raises(DrafterError, match="optim: lr: must be a number"):
        load_config(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DrafterError, match=r"c\.json: "):
        load_config(path)


@pytest.mark.parametrize(
    ("name", "value"), [("generate.samples", -5), ("shape.block", 0), ("heldout", -1)]
)
def test_nothing_is_loaded_or_written_before(name, value, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "open_model", None)
    path = written(tmp_path / "c.json", name, value)
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"outrider: {path}: {name} must be in ")
    assert said.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize("seconds", ["inf", "20000000000.0"])
def test_options_are_checked_too(seconds, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "open_model", None)
    assert main(["train", "--out", str(tmp_path / "out"), "--seconds", seconds]) == 2
    said = capsys.readouterr().err
    assert said == f"outrider: optim.seconds must be in [0.0, 10000000000.0], not {seconds}\n"
    assert not list(tmp_path.iterdir())


FITTING = TrainConfig(generate=GenerateConfig(length=64))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"taps": (99,)}, r"shape\.taps must be below the target's 4 layers, not \[99\]"),
        ({"taps": (0, 4)}, r"shape\.taps must be below the target's 4 layers, not \[0, 4\]"),
        ({"warm_layers": True, "layers": 5}, r"shape\.layers must be at most the target's 4 for"),
        (
            {"warm_layers": True, "intermediate_size": 64},
            r"shape\.intermediate_size must be 0 or the target's 96 for shape\.warm_layers, not 64",
        ),
    ],
)
def test_a_shape_that_does_not_fit_the_target(changes, message):
    with pytest.raises(DrafterError, match=f"^{message}"):
        check_target(replace(FITTING, shape=replace(ShapeConfig(), **changes)), CONFIG)


def test_a_row_longer_than_the_targets_context():
    check_target(replace(FITTING, generate=GenerateConfig(length=256)), CONFIG)
    message = r"generate\.length must be at most the target's context 256, not 257"
    with pytest.raises(DrafterError, match=message):
        check_target(replace(FITTING, generate=GenerateConfig(length=257)), CONFIG)


def test_the_target_is_checked_before_anything_is_written(tmp_path, capsys, monkeypatch):
    @contextmanager
    def opened(name, progress):
        yield SimpleNamespace(config=CONFIG)

    monkeypatch.setattr(run, "open_model", opened)
    monkeypatch.setattr(run, "load_target", None)
    path = tmp_path / "c.json"
    for shape, reason in (
        ({"taps": [99]}, "shape.taps must be below the target's 4 layers"),
        ({"taps": [3, 3]}, "shape.taps must name each layer once, not [3, 3]"),
        ({"num_taps": 99}, "shape.num_taps must be at most the target's 4 layers, not 99"),
    ):
        path.write_text(json.dumps({"shape": shape, "generate": {"length": 64}}))
        assert main(["train", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
        assert reason in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_a_drafter_may_be_deeper_than_its_target_unless_it_takes_its_layers(tmp_path):
    target = torch_target()
    config = TrainConfig(
        out=str(tmp_path / "out"),
        work=str(tmp_path / "work"),
        heldout=0,
        generate=GenerateConfig(length=32),
        shape=replace(SHAPE, layers=5, draft_vocab=V),
        optim=replace(FAST, steps=1, rows=4, anchors=4),
    )
    (tmp_path / "work").mkdir()
    report = run.fit(target, written_rows(target, 8, 1, 0.0), config)
    assert (report.finished, report.samples) == (True, 8)


def test_writing_ends_if_no_conversation_can_be_kept(monkeypatch):
    """A row of 24 tokens begins with a frame, so it never holds 23 tokens of answers."""
    config = replace(SMALL, samples=8, batch=128, length=24, min_supervised=23)
    message = "none of 512 conversations has 23 tokens of answers; raise generate.length, or lower"
    with pytest.raises(DrafterError, match=message):
        generate(torch_target(), FRAME, replace(config, samples=1024))
