"""``inspect``: facts about models and drafters, by the names that commands take."""

from __future__ import annotations

import re
from typing import Any

import pytest


def test_inspect_a_model(outrider: Any, tiny: str) -> None:
    facts = outrider("inspect", tiny, "--json").json()
    assert facts["kind"] == "model"
    assert facts["architecture"] == "llama"
    assert (facts["layers"], facts["vocabulary"], facts["context"]) == (2, 259, 512)
    assert facts["kv_bytes_per_token"] > 0
    assert facts["memory_bytes"] == (
        facts["weight_bytes_per_pass"] + facts["quoted_context"] * facts["kv_bytes_per_token"]
    )
    shown = outrider("inspect", tiny).out
    assert "vocabulary" in shown
    assert "259" in shown


def test_inspect_tells_how_keys_and_values_are_kept(outrider: Any, tiny: str) -> None:
    """Two layers of two heads: keys of 8 dimensions, values padded to 16; int8 has scales."""
    assert re.search(r"^kv cache +bfloat16 \(auto\)$", outrider("inspect", tiny).out, re.MULTILINE)
    sizes = {"int8": 4 * (24 + 8), "bfloat16": 4 * 48, "float32": 4 * 96, "auto": 4 * 48}
    for dtype, size in sizes.items():
        facts = outrider("inspect", tiny, "--kv-cache-dtype", dtype, "--json").json()
        assert facts["kv_cache"] == ("bfloat16 (auto)" if dtype == "auto" else dtype)
        if facts["kernels"] != "reference":
            assert facts["kv_bytes_per_token"] == size


def test_inspect_drafters(outrider: Any, drafter: str) -> None:
    facts = outrider("inspect", drafter, "--kernels", "reference", "--json").json()
    assert (facts["kind"], facts["layers"], facts["block_size"]) == ("dflash", 1, 4)
    assert (facts["row_shift"], facts["taps"], facts["max_draft"]) == (0, [0, 1], 3)
    assert facts["draft_kv_bytes_per_token"] == 2 * 4 * 2 * 8
    assert facts["parameters"] > 0
    assert outrider("inspect", "ngram", "--json").json()["kind"] == "ngram"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("smollm2-dspark", "dspark"), ("smollm2-mtp", "mtp"), ("auto", "auto"), ("none", "none")],
)
def test_inspect_takes_what_drafter_takes(outrider: Any, name: str, kind: str) -> None:
    facts = outrider("inspect", name, "--json").json()
    assert facts["kind"] == kind
    if kind == "auto":
        assert facts["shipped"] == ["smollm2-dspark", "smollm2-mtp"]
    shown = outrider("inspect", name).out
    assert shown.startswith("kind ")
    assert kind in shown
