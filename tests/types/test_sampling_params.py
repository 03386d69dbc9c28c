"""Sampling parameters: one form for whatever was written, or a refusal with the right name."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from outrider import SamplingParams
from outrider.config.engine import EngineConfig
from outrider.types.errors import RequestError
from outrider.types.synonyms import OPTIONS, SAMPLING, SAMPLING_NAMES

NAMES = {field.name for field in fields(SamplingParams)}


def refusal(**given: Any) -> str:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.parameter in given
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"temperature": np.float32(0.5)}, 0.5),
        ({"temperature": np.int64(1)}, 1.0),
        ({"temperature": 0}, 0.0),
        ({"temperature": Fraction(1, 4)}, 0.25),
        ({"top_p": np.float64(0.25)}, 0.25),
        ({"top_k": np.int32(7)}, 7),
        ({"n": np.uint8(3)}, 3),
        ({"seed": np.uint64(2**40)}, 2**40),
        ({"max_tokens": np.int16(9)}, 9),
        ({"logprobs": np.int8(2)}, 2),
        ({"min_tokens": np.int64(2)}, 2),
        ({"stop_token_ids": np.array([3, 4])}, (3, 4)),
        ({"stop_token_ids": [np.int64(3)]}, (3,)),
        ({"stop_token_ids": {5}}, (5,)),
        ({"stop_token_ids": iter([1, 2])}, (1, 2)),
        ({"stop_token_ids": None}, ()),
        ({"logit_bias": {np.int64(4): np.float32(2)}}, {4: 2.0}),
        ({"logit_bias": None}, {}),
        ({"stop": "a"}, ("a",)),
        ({"stop": ["a", "b"]}, ("a", "b")),
    ],
)
def test_numbers_of_other_libraries_become_pythons(given: dict[str, Any], stored: Any) -> None:
    (name,) = given
    found = getattr(SamplingParams(**given), name)
    assert found == stored
    assert type(found) is type(stored) or name == "logit_bias"
    for item in found if isinstance(found, tuple) else ():
        assert type(item) in (int, str)
    if name == "logit_bias":
        assert [(type(k), type(v)) for k, v in found.items()] == [(int, float)] * len(found)


@pytest.mark.parametrize("name", [n for n in sorted(NAMES) if n not in ("stop", "logit_bias")])
@pytest.mark.parametrize(
    "value",
    ["1", b"1", [1.5], {"a": 1}, 1j, object(), Decimal(1), float("nan"), float("inf"), "x" * 10**5],
)
def test_wrong_types_are_refused_by_name(name: str, value: object) -> None:
    assert refusal(**{name: value}).startswith(f"{name}: must be ")


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": True},
        {"top_k": 2.0},
        {"n": True},
        {"n": 0},
        {"n": 10**90},
        {"temperature": 10**400},
        {"temperature": -(10**400)},
        {"seed": 10**5000},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"ignore_eos": 1},
        {"ignore_eos": None},
        {"ignore_eos": np.bool_(True)},
        {"stop": 5},
        {"stop": b"a"},
        {"stop": {"a"}},
        {"stop": [""]},
        {"stop": ["a", 5]},
        {"stop": "a\udcff"},
        {"stop": ["ok", "\ud83d"]},
        {"stop": ["\ud83d", "\ude00"]},
        {"stop_token_ids": 5},
        {"stop_token_ids": "5"},
        {"stop_token_ids": {5: 1}},
        {"stop_token_ids": np.array(5)},
        {"stop_token_ids": np.array([[5]])},
        {"stop_token_ids": [True]},
        {"stop_token_ids": [-1]},
        {"logit_bias": [5]},
        {"logit_bias": {"5": 1.0}},
        {"logit_bias": {5: "1"}},
        {"logit_bias": {5: float("nan")}},
        {"logit_bias": {5: 101}},
        {"temperature": None},
        {"n": None},
    ],
)
def test_values_that_cannot_be(given: dict[str, Any]) -> None:
    refusal(**given)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_new_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("n_predict", "max_tokens"),
        ("num_predict", "max_tokens"),
        ("min_new_tokens", "min_tokens"),
        ("stop_sequences", "stop"),
        ("stop_strings", "stop"),
        ("eos_token_id", "stop_token_ids"),
        ("repeat_penalty", "repetition_penalty"),
        ("num_return_sequences", "n"),
        ("top_logprobs", "logprobs"),
        ("random_seed", "seed"),
        ("temp", "temperature"),
        ("Max-New-Tokens", "max_tokens"),
    ],
)
def test_names_of_others_are_translated(name: str, meant: str) -> None:
    assert refusal(**{name: 3}) == f"{name}: is no sampling parameter here; use {meant}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("do_sample", "temperature=0 is greedy"),
        ("num_beams", "no beam search"),
        ("best_of", "not supported; use n"),
        ("prompt_logprobs", "not supported"),
        ("typical_p", "not supported"),
        ("guided_json", "no constrained decoding"),
        ("stream", "llm.stream"),
        ("drafter", "LLM(drafter=...)"),
        ("max_model_len", "LLM(max_model_len=...)"),
        ("temprature", "did you mean temperature?"),
        ("stop_token_idss", "did you mean stop_token_ids?"),
        ("zzzz", "there are n, temperature,"),
    ],
)
def test_names_that_have_no_counterpart(name: str, words: str) -> None:
    text = refusal(**{name: 3})
    assert text.startswith(f"{name}: is no sampling parameter")
    assert words in text


def test_the_tables_hold_only_names_that_do_not_exist() -> None:
    options = {field.name for field in fields(EngineConfig)}
    assert not SAMPLING.keys() & NAMES
    assert not OPTIONS.keys() & options
    for table in (SAMPLING, OPTIONS):
        assert all(name.isidentifier() and hint for name, hint in table.items())
        # A hint of one word is a name to use, and exists.
        words = {hint for hint in table.values() if hint.isidentifier()}
        own = {"model", "drafter", "device", "threads", "kernels", "progress"}
        assert words <= (NAMES if table is SAMPLING else options | own)


def test_every_parameter_is_known_as_one_where_it_does_not_belong() -> None:
    assert set(SAMPLING_NAMES) == set(NAMES)


def test_too_many_values_and_one_twice() -> None:
    for make in (lambda: SamplingParams(*range(40)), lambda: SamplingParams(1, n=1)):
        with pytest.raises(RequestError) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_params_do_not_change_and_hold_no_list_of_the_caller() -> None:
    stop, ids, bias = ["a"], [1], {2: 3.0}
    params = SamplingParams(stop=stop, stop_token_ids=ids, logit_bias=bias)
    stop.append("b")
    ids.append(2)
    bias[3] = 4.0
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("a",), (1,), {2: 3.0})
    with pytest.raises(FrozenInstanceError):
        params.n = 2  # type: ignore[misc]
    held: Any = params.logit_bias
    for change in (
        lambda: held.update({5: 1.0}),
        lambda: held.__setitem__(5, 1.0),
        lambda: held.pop(2),
        held.clear,
        lambda: held.setdefault(9, 1.0),
        lambda: held.__delitem__(2),
        lambda: held.__ior__({5: 1.0}),
    ):
        with pytest.raises(TypeError):
            change()
    assert params.logit_bias == {2: 3.0}


def test_params_are_values() -> None:
    params = SamplingParams(temperature=0.5, stop=["a"], logit_bias={2: 3.0}, seed=4)
    same = SamplingParams(temperature=0.5, stop="a", logit_bias={2: 3}, seed=np.int64(4))
    assert params == same
    assert hash(params) == hash(same)
    for twin in (copy.copy(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        assert twin == params
        with pytest.raises(TypeError):
            twin.logit_bias[1] = 1.0
    assert replace(params, n=2).logit_bias == {2: 3.0}
    assert json.loads(json.dumps(asdict(params)))["logit_bias"] == {"2": 3.0}
    with pytest.raises(RequestError, match="use max_tokens"):
        replace(params, max_new_tokens=2)
