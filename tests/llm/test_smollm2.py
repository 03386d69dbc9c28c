"""The default model on the native kernels and on the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from outrider import LLM, SamplingParams
from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.config.kv import KvCacheDtype
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.rows import Rows
from outrider.loaders.checkpoint import tensor_shapes
from outrider.loaders.open import open_model
from outrider.models.dense import DenseModel
from outrider.types.errors import DrafterError, ModelError, RequestError

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = SamplingParams(temperature=0, max_tokens=20)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("smollm2", drafter="none", max_model_len=512)


def forward(
    model: DenseModel, ids: list[int], cuts: list[int], dtype: KvCacheDtype = "auto"
) -> torch.Tensor:
    """Logits of all rows, fed in pieces."""
    return feed(model, PagedCache(PagePool(model.allocate(16, dtype))), ids, cuts)


def feed(model: DenseModel, cache: PagedCache, ids: list[int], cuts: list[int]) -> torch.Tensor:
    """Logits of rows that are fed after those that the cache holds."""
    parts, first = [], 0
    for count in cuts:
        rows = Rows((cache.stage(count),))
        chunk = torch.tensor(ids[first : first + count])
        out = model.forward(chunk, rows, cache._pool.store, torch.arange(count))
        cache.commit(count)
        parts.append(model.logits(out.hidden))
        first += count
    return torch.cat(parts)


def test_logits_are_those_of_transformers(llm: LLM) -> None:
    """The reference in float32 against transformers over the same dequantised weights."""
    with open_model("smollm2") as checkpoint:
        config, shapes = checkpoint.config, tensor_shapes(checkpoint.config)
        weights = {name: checkpoint.tensor(name, shapes[name]).float() for name in shapes}
        reference = DenseModel(config, ReferenceKernels(), checkpoint.tensor, 512)
    with torch.device("meta"):
        theirs = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                vocab_size=config.vocab_size,
                rms_norm_eps=config.rms_eps,
                rope_parameters={"rope_type": "default", "rope_theta": config.rotary.theta},
                tie_word_embeddings=True,
            )
        )
    theirs.load_state_dict(weights, strict=False, assign=True)
    theirs.tie_weights()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    ids = llm.tokenizer.encode_chat(QUESTION)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    ours = forward(reference, ids, [len(ids) - 3, 3], "float32")
    assert float((ours - expected).norm() / expected.norm()) < 1e-4
    assert torch.equal(ours.argmax(-1), expected.argmax(-1))
    fast = forward(llm._target.model, ids, [len(ids)])
    assert float((fast - expected).norm() / expected.norm()) < 0.05, "int8 activations cost this"


def test_whole_model_rows_on_the_default_kernels(llm: LLM) -> None:
    ids = (llm.tokenizer.encode_chat(QUESTION) * 9)[:300]
    model = llm._target.model
    assert len(ids) == 300
    whole = forward(model, ids, [300])
    # The rows before are the same for all: each number of rows goes on from a fork of them.
    begun = PagedCache(PagePool(model.allocate(16)))
    assert torch.equal(feed(model, begun, ids[:200], [200]), whole[:200])
    for count in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64):
        cuts = [*([count] * (100 // count)), *([100 % count] if 100 % count else [])]
        cache = begun.fork()
        found = feed(model, cache, ids[200:], cuts)
        assert torch.equal(found, whole[200:]), f"{count} rows a pass"
        cache.release()


def test_every_drafter_gives_the_same_answer(llm: LLM) -> None:
    plain = llm.chat(QUESTION, GREEDY)[0].outputs[0]
    assert len(plain.text) > 20
    names = {
        "ngram": "ngram",
        "auto": "ngram+dspark",
        "smollm2-dspark": "dspark",
        "smollm2-mtp": "mtp",
    }
    for drafter, name in names.items():
        variant = llm.variant(drafter=drafter, draft_length=7)
        assert variant.drafter_name == name
        output = variant.chat(QUESTION, GREEDY)[0]
        assert output.outputs[0].token_ids == plain.token_ids
        if drafter != "ngram":
            assert output.metrics.speculation.acceptance_length > 1.2, "trained on this model"


def test_generate_accepts_text_and_tokens(llm: LLM) -> None:
    ids = llm.tokenizer.encode("Once upon a time", add_special=True)
    outputs = llm.generate(["Once upon a time", ids], GREEDY)
    assert outputs[0].outputs[0].token_ids == outputs[1].outputs[0].token_ids
    assert llm.generate(ids, GREEDY)[0].outputs[0].text == outputs[0].outputs[0].text
    assert [o.finished for o in outputs] == [True, True]


def test_params_per_prompt_and_their_count(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for n in (1, 3)]
    outputs = llm.generate(["a", "b"], params)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [1, 3]
    with pytest.raises(RequestError, match="1 of them for 2 prompts"):
        llm.generate(["a", "b"], params[:1])
    assert not llm.engine.has_unfinished


def test_one_bad_prompt_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(RequestError, match="at least one token"):
        llm.generate(["fine", []], GREEDY)
    assert not llm.engine.has_unfinished


def test_stream_pieces_join_to_the_text_and_close_cancels(llm: LLM) -> None:
    with llm.stream(QUESTION, GREEDY) as stream:
        text = "".join(stream)
    assert stream.output is not None
    assert stream.output.outputs[0].text == text
    assert stream.output.outputs[0].finish_reason in ("stop", "length")
    cut = llm.stream("Once", SamplingParams(max_tokens=200, temperature=0))
    next(cut)
    cut.close()
    assert cut.output is not None
    assert cut.output.outputs[0].finish_reason == "abort"
    assert not llm.engine.has_unfinished
    with pytest.raises(RequestError, match="one completion"):
        llm.stream("x", SamplingParams(n=2))


def test_refusals_are_one_line(llm: LLM) -> None:
    for make, error in (
        (lambda: LLM("/nonexistent"), ModelError),
        (lambda: LLM("smollm2", drafter="/nonexistent"), DrafterError),
        (lambda: llm.variant(drafter=""), RequestError),
        (lambda: LLM("smollm2", device="tpu"), RequestError),
        (lambda: LLM("smollm2", max_model_len=10**6), RequestError),
        (lambda: LLM("smollm2", verification="hope"), RequestError),
    ):
        with pytest.raises(error) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_streams_of_one_model_keep_their_own_text(llm: LLM) -> None:
    """Whoever runs the rounds, each stream delivers all of its own text."""
    first, second = llm.stream("Once upon a time", GREEDY), llm.stream("The sea", GREEDY)
    parts = {first: next(first), second: ""}
    llm.generate("Unrelated", GREEDY)
    for stream in (second, first):
        parts[stream] += "".join(stream)
        assert stream.output is not None
        assert parts[stream] == stream.output.outputs[0].text


@pytest.mark.parametrize(
    "prompts", [5, None, ["a", 5], [[1.5]], [True], b"abc", [["a", "b"]], "a\udcffb"]
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError, match="prompt"):
        llm.generate(prompts, GREEDY)
    assert not llm.engine.has_unfinished


@pytest.mark.parametrize("messages", [[[]], {"role": "user"}, [QUESTION, QUESTION[0]], "hello", 3])
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match="messages"):
        llm.chat(messages, GREEDY)


def test_params_are_checked(llm: LLM) -> None:
    for params in ([], {"max_tokens": 3}, [GREEDY, GREEDY]):
        with pytest.raises(RequestError, match="params"):
            llm.generate(["a"], params)  # type: ignore[arg-type]
    everything = list(range(llm.model_config.vocab_size))
    with pytest.raises(RequestError, match="min_tokens"):
        llm.generate("a", SamplingParams(stop_token_ids=everything, min_tokens=1))
