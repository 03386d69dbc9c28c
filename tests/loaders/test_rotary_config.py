"""Rotary parameters in every spelling."""

from __future__ import annotations

import pytest

from outrider.config.rotary import RotaryConfig
from outrider.loaders.fields import Fields
from outrider.loaders.rotary import read_rotary
from outrider.types.errors import ModelError

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**values: object) -> RotaryConfig:
    return read_rotary(Fields("config.json", values), 4096)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"rope_type": "default"}, RotaryConfig(5e5)),
        ({"rope_type": "linear", "factor": 2}, RotaryConfig(5e5, "linear", 2.0)),
        (
            {"rope_type": "llama3", **LLAMA3},
            RotaryConfig(5e5, "llama3", 8.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0),
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
            RotaryConfig(5e5, "yarn", 4.0, 1024),
        ),
        (
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "beta_fast": 16,
                "beta_slow": 2,
                "attention_factor": 1.5,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "truncate": False,
            },
            RotaryConfig(
                5e5,
                "yarn",
                4.0,
                4096,
                beta_fast=16.0,
                beta_slow=2.0,
                attention_factor=1.5,
                mscale=1.0,
                mscale_all_dim=0.5,
                truncate=False,
            ),
        ),
    ],
)
def test_old_and_new_spelling(old: bool, table: dict[str, object], wanted: RotaryConfig) -> None:
    if old:
        values = {"type" if key == "rope_type" else key: value for key, value in table.items()}
        assert read(rope_theta=500000.0, rope_scaling=values) == wanted
    else:
        assert read(rope_parameters={"rope_theta": 500000.0, **table}) == wanted


def test_without_scaling() -> None:
    assert read() == RotaryConfig(10000.0)
    assert read(rope_theta=7, rope_scaling=None) == RotaryConfig(7.0)


@pytest.mark.parametrize(
    ("values", "theta", "told"),
    [
        ({"rotary_emb_base": 5e5}, 5e5, ["rotary_emb_base is taken as rope_theta"]),
        (
            {"rope_parameters": {"rope_type": "default", "rotary_emb_base": 7}},
            7.0,
            ["rotary_emb_base is taken as rope_theta"],
        ),
        ({"rotary_emb_base": 5e5, "rope_theta": 5e5}, 5e5, []),
        (
            {"rotary_emb_base": 9.0, "rope_parameters": {"rope_theta": 5e5}},
            5e5,
            ["rope_theta and rotary_emb_base differ; rope_theta is used"],
        ),
        ({"rotary_pct": 1.0, "rotary_emb_fraction": 1, "rope_theta": 7}, 7.0, []),
        ({"rotary_emb_base": None, "rotary_pct": None}, 10000.0, []),
    ],
)
def test_other_names_of_the_parameters(
    values: dict[str, object], theta: float, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert read(**values) == RotaryConfig(theta)
    assert [record.getMessage() for record in caplog.records] == [
        f"config.json: {line}" for line in told
    ]


def test_yarn_derives_a_missing_factor_from_the_context_lengths() -> None:
    table = {"rope_type": "yarn", "original_max_position_embeddings": 1024}
    assert read(rope_parameters=table).factor == 4.0


def test_an_original_length_beside_the_table_wins() -> None:
    table = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}
    rotary = read(rope_parameters=table, original_max_position_embeddings=2048)
    assert rotary.original_max_position == 2048


def test_parameters_per_layer_type_must_agree() -> None:
    one = {"rope_type": "linear", "factor": 2.0, "rope_theta": 9.0}
    table = {"full_attention": one, "sliding_attention": dict(one)}
    assert read(rope_parameters=table) == RotaryConfig(9.0, "linear", 2.0)
    table["sliding_attention"]["factor"] = 3.0
    with pytest.raises(ModelError, match="field rope_parameters must be the same for full_att"):
        read(rope_parameters=table)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2}},
            "field rope_scaling.type must be one of default, linear, llama3, yarn, not 'dynamic'",
        ),
        (
            {"rope_parameters": {"rope_type": "longrope"}},
            "field rope_parameters.rope_type must be one of .*, not 'longrope'",
        ),
        ({"rope_scaling": {"type": "linear"}}, "field rope_scaling.factor is missing"),
        (
            {"rope_scaling": {"type": "linear", "factor": 0.5}},
            "field rope_scaling.factor must be a number of at least 1, not 0.5",
        ),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor is missing"),
        (
            {"rope_scaling": {**LLAMA3, "rope_type": "llama3", "high_freq_factor": 1.0}},
            "high_freq_factor must be greater than low_freq_factor 1, not 1.0",
        ),
        ({"rope_theta": 0}, "field rope_theta must be a finite number above 1, not 0"),
        ({"rope_theta": "big"}, "field rope_theta must be a finite number above 1, not 'big'"),
        ({"partial_rotary_factor": 0.5}, "field partial_rotary_factor must be 1 .*, not 0.5"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.25}},
            "field rope_parameters.partial_rotary_factor must be 1 .*, not 0.25",
        ),
        ({"rotary_pct": 0.25}, "field rotary_pct must be 1 .*, not 0.25"),
        ({"rotary_emb_fraction": 0.5}, "field rotary_emb_fraction must be 1 .*, not 0.5"),
        (
            {"partial_rotary_factor": 1.0, "rope_scaling": {"rotary_pct": 0.5}},
            "field rope_scaling.rotary_pct must be 1 .*, not 0.5",
        ),
        ({"rotary_emb_base": 0}, "field rotary_emb_base must be a finite number above 1, not 0"),
        ({"rope_scaling": [1]}, r"field rope_scaling must be an object, not \[1\]"),
    ],
)
def test_faults(values: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=rf"^config\.json: .*{message}") as caught:
        read(**values)
    assert "\n" not in str(caught.value)
