"""What ``LLM`` and ``LLM.variant`` are given: accepted in its one form, or refused by name."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider import LLM, SamplingParams
from outrider.config.engine import EngineConfig
from outrider.types.errors import DrafterError, ModelError, RequestError
from support.folders import tiny_folder

GREEDY = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)
PROMPT = [5, 9, 11, 5, 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(folder, drafter="none", threads=1)


def refusal(make: Any, **given: Any) -> str:
    with pytest.raises(RequestError) as caught:
        make(**given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert caught.value.parameter in given
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kv_bytes", "use kv_cache_memory_bytes"),
        ("n_ctx", "use max_model_len"),
        ("n_threads", "use threads"),
        ("num_speculative_tokens", "use draft_length"),
        ("speculative_model", "use drafter"),
        ("model_path", "use model"),
        ("tensor_parallel_size", "one process on one device"),
        ("gpu_memory_utilization", "kv_cache_memory_bytes bounds the KV cache"),
        ("quantization", "weights keep the format of the checkpoint"),
        ("dtype", "weights keep the format of the checkpoint"),
        ("speculative_config", "use drafter and draft_length"),
        ("tokenizer", "comes from the checkpoint"),
        ("trust_remote_code", "no code of a checkpoint is ever run"),
        ("enforce_eager", "nothing is compiled or captured"),
        ("seed", "SamplingParams(seed=...)"),
        ("temperature", "SamplingParams(temperature=...)"),
        ("max_new_tokens", "SamplingParams(max_tokens=...)"),
        ("swap_space", "not needed"),
        ("n_gpu_layers", "not supported"),
        ("max_modle_len", "did you mean max_model_len?"),
        ("zzzz", "there are model, drafter, device,"),
    ],
)
def test_unknown_options_are_refused_with_the_right_one(
    folder: Path, llm: LLM, name: str, words: str
) -> None:
    text = refusal(lambda **given: LLM(folder, **given), **{name: 3})
    assert text.startswith(f"{name}: is no option of LLM")
    assert words in text
    assert refusal(llm.variant, **{name: 3}).startswith(f"{name}: is no option of LLM.variant")


WRONG: dict[str, list[object]] = {
    "max_model_len": ["64", 64.0, True, 0, -1, 2**40, [64], float("nan")],
    "max_num_seqs": ["4", 4.0, None, False, 0, -3],
    "max_num_batched_tokens": ["4", 4.5, None, True, 0],
    "draft_length": ["4", 4.0, True, -1, [4]],
    "verification": [None, 3, "hope", "", ["coupled"], np.array(["coupled"]), b"coupled"],
    "kv_cache_dtype": [None, 8, "int4", "", "fp8", b"int8", ["int8"], np.dtype("int8")],
    "kv_cache_memory_bytes": ["lots", "0", "", 2e9, True, 0, -1, 2**70],
    "confidence_threshold": ["0.5", None, True, -0.1, 1.1, float("nan"), [0.5]],
}
WRONG_ONCE: dict[str, list[object]] = {
    "model": [None, 5, b"x", ["smollm2"], True],
    "drafter": [None, 5, b"none", ["none"], False],
    "device": [None, 0, b"cpu", "cuda", "CPU", "gpu:0", "", "x" * 300, "a\udcff"],
    "threads": [0, -1, 2.0, "2", True, 10**30],
    "kernels": [3, b"avx2", ["avx2"], True, "foo", "AVX2", "", "cuda", "x" * 300],
    "progress": [None, 3, "bar"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_engine_options_of_wrong_types(llm: LLM, name: str, value: object) -> None:
    for make in (llm.variant, EngineConfig):
        assert refusal(make, **{name: value}).startswith(f"{name}: must be ")


def test_a_pass_has_a_row_for_every_session(folder: Path, llm: LLM) -> None:
    """As vLLM refuses it: a value below the sessions in flight would starve some of them."""
    for make in (llm.variant, EngineConfig):
        text = refusal(make, max_num_batched_tokens=7)
        assert text.startswith("max_num_batched_tokens: must be at least max_num_seqs, 16, so that")
        assert text.endswith("not 7; raise it or lower max_num_seqs")
        text = refusal(make, max_num_seqs=513, max_num_batched_tokens=512)
        assert "max_num_seqs, 513," in text
    assert EngineConfig(max_num_seqs=7, max_num_batched_tokens=7).max_num_batched_tokens == 7


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_ONCE.items() for value in values]
)
def test_arguments_of_wrong_types(folder: Path, name: str, value: object) -> None:
    given: dict[str, Any] = {"model": folder, "drafter": "none", "threads": 1} | {name: value}
    assert refusal(LLM, **given).startswith(f"{name}: must be ")


CHOICES: dict[str, tuple[str, ...]] = {
    "device": ("auto", "cpu"),
    "kernels": ("avx512vnni", "avx2", "portable", "reference"),
    "verification": ("coupled", "rejection"),
    "kv_cache_dtype": ("auto", "int8", "bfloat16", "float32"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_names_the_choices_before_anything_is_loaded(name: str) -> None:
    """The model does not exist, and is not looked for."""
    text = refusal(LLM, **{"model": "/nonexistent", name: "foo"})
    assert text.startswith(f"{name}: must be ")
    assert text.endswith(", not 'foo'")
    assert all(choice in text for choice in CHOICES[name])


def test_numbers_of_other_libraries_count(folder: Path) -> None:
    made = LLM(
        folder,
        drafter="ngram",
        threads=np.int64(1),
        max_model_len=np.int32(64),
        draft_length=np.uint8(2),
        confidence_threshold=np.float32(0.5),
        max_num_seqs=np.int64(2),
    )
    assert made.engine.max_model_len == 64
    config = EngineConfig(max_model_len=np.int32(64), confidence_threshold=np.float32(0.5))
    assert type(config.max_model_len) is int
    assert type(config.confidence_threshold) is float


@pytest.mark.parametrize("name", ["model", "drafter"])
@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_name_is_named(folder: Path, name: str, value: str) -> None:
    given: dict[str, Any] = {"model": folder, "drafter": "none", "threads": 1} | {name: value}
    assert refusal(LLM, **given).startswith(f"{name}: is empty; give a name or a path")


def test_amounts_of_memory_are_written_as_on_the_command_line(folder: Path, llm: LLM) -> None:
    assert EngineConfig(kv_cache_memory_bytes="1.5 MiB").kv_cache_memory_bytes == 3 << 19
    twins = [
        LLM(folder, drafter="none", threads=1, kv_cache_memory_bytes="32KiB"),
        llm.variant(kv_cache_memory_bytes="32KiB"),
        llm.variant(kv_cache_memory_bytes=32 << 10),
    ]
    reach = {twin.engine.max_model_len for twin in twins}
    assert len(reach) == 1
    assert reach.pop() < llm.engine.max_model_len


def test_a_context_of_one_token_says_what_is_right(llm: LLM) -> None:
    short = llm.variant(max_model_len=1)
    with pytest.raises(RequestError) as caught:
        short.generate([5])
    assert caught.value.parameter == "max_model_len"
    assert str(caught.value).endswith("it must be at least 2")
    assert len(llm.variant(max_model_len=2).generate([5], GREEDY)[0].outputs[0].token_ids) == 1


@pytest.mark.parametrize(
    ("call", "takes"),
    [
        (lambda llm: LLM("smollm2", "ngram"), "LLM: takes model alone without a name"),
        (lambda llm: llm.variant("none", 3), "LLM.variant: takes drafter alone without a name"),
        (
            lambda llm: llm.generate("a", GREEDY, print, 3),
            "LLM.generate: takes prompts, params, progress without a name",
        ),
        (
            lambda llm: llm.chat([], GREEDY, print, 3, 4),
            "LLM.chat: takes messages, params, progress without a name",
        ),
        (lambda llm: llm.stream("a", GREEDY, 3), "LLM.stream: takes prompt, params without a name"),
    ],
)
def test_too_many_arguments_without_a_name(llm: LLM, call: Any, takes: str) -> None:
    with pytest.raises(RequestError) as caught:
        call(llm)
    extra = "'ngram'" if takes.startswith("LLM:") else "3"
    assert str(caught.value) == f"{takes}; write name=value for {extra}"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_llm_is_not_copied(llm: LLM, copied: Any) -> None:
    with pytest.raises(RequestError, match=r"cannot be pickled or copied, .* make an LLM where"):
        copied(llm)


def test_paths_of_both_kinds(folder: Path) -> None:
    for model in (folder, str(folder)):
        assert LLM(model, drafter="none", threads=1).model_config.hidden_size == 32
    with pytest.raises(DrafterError, match=r"config\.json: no such file"):
        LLM(folder, drafter=folder.parent, threads=1)
    with pytest.raises(ModelError, match="holds no safetensors"):
        LLM(folder.parent, threads=1)


def test_what_belongs_to_the_model_is_no_matter_of_a_variant(llm: LLM) -> None:
    for name in ("model", "device", "threads", "kernels", "progress"):
        text = refusal(llm.variant, **{name: "x"})
        assert text == f"{name}: belongs to the loaded model; make another LLM for it"


@pytest.mark.parametrize(
    "prompt",
    [
        np.array(PROMPT),
        np.array(PROMPT, dtype=np.uint16),
        [np.int64(token) for token in PROMPT],
        tuple(PROMPT),
        [np.array(PROMPT)],
        np.array([PROMPT]),
    ],
)
def test_tokens_of_other_libraries(llm: LLM, prompt: Any) -> None:
    (output,) = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=4))
    assert output.prompt_token_ids == PROMPT
    assert all(type(token) is int for token in output.prompt_token_ids)
    assert output.outputs[0].token_ids == (
        llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=4))[0].outputs[0].token_ids
    )


@pytest.mark.parametrize(
    "prompt",
    [
        np.array([1.0, 2.0]),
        np.array([True]),
        np.array(5),
        [1, True],
        [1, 2.0],
        np.array(["a", None]),
    ],
)
def test_arrays_that_are_no_tokens(llm: LLM, prompt: Any) -> None:
    with pytest.raises(RequestError, match=r"^prompts?(\[\d\])?: must "):
        llm.generate(prompt, GREEDY)
    with pytest.raises(RequestError, match=r"^prompts?(\[\d\])?: must "):
        llm.stream(prompt, GREEDY)


@pytest.mark.parametrize("tokens", [[], np.array([], dtype=int)])
def test_no_tokens(llm: LLM, tokens: Any) -> None:
    with pytest.raises(RequestError, match="must hold at least one token"):
        llm.stream(tokens, GREEDY)


# -- the length of a context -----------------------------------------------------------------------


def length_of(llm: LLM) -> int:
    """How long a session really gets."""
    output = llm.generate(PROMPT, GREEDY)[0]
    assert output.outputs[0].finish_reason == "length"
    return len(PROMPT) + len(output.outputs[0].token_ids)


def test_a_variant_has_the_length_it_asks_for(folder: Path) -> None:
    short = LLM(folder, drafter="ngram", threads=1, max_model_len=16)
    whole = short.variant(max_model_len=256).generate(PROMPT, GREEDY)[0].outputs[0].token_ids
    for length in (16, 100, 8, 256):
        twin = short.variant(max_model_len=length)
        assert twin.engine.max_model_len == length == length_of(twin)
        assert twin._target.model.positions == length
        tokens = twin.generate(PROMPT, GREEDY)[0].outputs[0].token_ids
        assert tokens == whole[: length - len(PROMPT)]
        assert length_of(twin.variant(max_model_len=9)) == 9
    assert short.variant(max_model_len=None).engine.max_model_len == 256
    assert short.engine.max_model_len == 16
    assert length_of(short) == 16
    text = refusal(short.variant, max_model_len=257)
    assert text == "max_model_len: must be at most 256, the model's own, not 257"


def test_variant_none_restores_a_default(folder: Path) -> None:
    made = LLM(folder, drafter="ngram", threads=1, draft_length=2, kv_cache_memory_bytes=10**5)
    twin = made.variant(draft_length=None, kv_cache_memory_bytes=None)
    assert (twin._config.draft_length, twin._config.kv_cache_memory_bytes) == (None, None)
    assert twin.engine.max_model_len == 256
    assert twin.drafter_name == "ngram"


def test_a_long_context_starts_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_folder(tmp_path / "m", max_position_embeddings=1 << 20)
    with caplog.at_level(logging.WARNING, logger="outrider"):
        long = LLM(folder, drafter="ngram", threads=1, kv_cache_memory_bytes=1 << 20)
    length = long.engine.max_model_len
    assert 256 < length < 1 << 20
    assert long._target.model.positions == length
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"the context is {length} of the model's 1048576 tokens: 1 MiB of KV")
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="outrider"):
        assert long.variant(drafter="none").engine.max_model_len == length
        assert long.variant(max_model_len=64).engine.max_model_len == 64
    assert not caplog.records
    text = refusal(long.variant, max_model_len=1 << 20)
    assert "lower max_model_len (--max-model-len) or raise kv_cache_memory_bytes" in text
    assert long.generate(PROMPT, SamplingParams(temperature=0, max_tokens=3))[0].finished


def test_memory_that_no_machine_has(llm: LLM) -> None:
    text = refusal(llm.variant, kv_cache_memory_bytes=1 << 60)
    assert "kv_cache_memory_bytes: is 1.049e+06 TiB, and this process can have" in text
