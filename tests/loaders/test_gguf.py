"""GGUF checkpoints: configuration, names, permuted rows, tokenizer, and every refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_files import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    VOCAB,
    interleave,
    llama_tensors,
    write_gguf,
)
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize

from outrider.config.rotary import RotaryConfig
from outrider.loaders.checkpoint import tensor_shapes
from outrider.loaders.gguf import GgufCheckpoint, canonical_name, rotary_rows
from outrider.loaders.gguf_config import llama3_factors
from outrider.loaders.smollm2 import smollm2_path
from outrider.models.rotary import frequencies_of
from outrider.types.errors import ModelError

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def family(architecture: str) -> dict[str, torch.Tensor]:
    """Weights of a tiny model of an architecture, under their Hugging Face names."""
    tensors = llama_tensors()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}.self_attn."
        if architecture == "qwen2":
            tensors[prefix + "q_proj.bias"] = torch.randn(HEADS * HEAD_DIM)
            tensors[prefix + "k_proj.bias"] = torch.randn(KV_HEADS * HEAD_DIM)
            tensors[prefix + "v_proj.bias"] = torch.randn(KV_HEADS * HEAD_DIM)
        if architecture == "qwen3":
            tensors[prefix + "q_norm.weight"] = torch.randn(HEAD_DIM)
            tensors[prefix + "k_norm.weight"] = torch.randn(HEAD_DIM)
    return tensors


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_names_rows_and_configuration_come_back(tmp_path: Path, architecture: str) -> None:
    tensors = family(architecture)
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", tensors, architecture))
    config = checkpoint.config
    assert config.architecture == architecture
    assert (config.hidden_size, config.intermediate_size) == (HIDDEN, INNER)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (LAYERS, HEADS, KV_HEADS)
    assert (config.head_dim, config.vocab_size, config.max_position) == (HEAD_DIM, VOCAB, 512)
    assert config.rms_eps == pytest.approx(1e-5)
    assert config.rotary == RotaryConfig(20000.0)
    assert config.windows == (None,) * LAYERS
    assert not config.tied
    assert config.qkv_bias == (architecture == "qwen2")
    assert not config.o_bias
    assert config.qk_norm == (architecture == "qwen3")
    assert (config.bos_id, config.eos_ids) == (1, (0, 2))
    assert set(checkpoint.names()) == tensors.keys() == tensor_shapes(config).keys()
    for name, tensor in tensors.items():
        assert torch.equal(checkpoint.tensor(name, tuple(tensor.shape)).data, tensor), name


@pytest.mark.parametrize("label", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_rows_are_put_back_in_order(tmp_path: Path, label: str) -> None:
    tensors = llama_tensors()
    path = write_gguf(tmp_path / "m.gguf", tensors, quantised=label)
    checkpoint = GgufCheckpoint(path)
    kind = GGMLQuantizationType[label]
    for name, tensor in tensors.items():
        weight = checkpoint.tensor(name, tuple(tensor.shape))
        if tensor.ndim == 1:
            assert weight.format == "F32"
            continue
        assert weight.format == label
        wanted = dequantize(quantize(tensor.numpy(), kind), kind)
        assert torch.equal(weight.float(), torch.from_numpy(wanted)), name
    assert checkpoint.quantization == f"{label} (16), F32 (5)"


def test_llama_biases_are_put_back_in_order_too(tmp_path: Path) -> None:
    tensors = llama_tensors()
    for layer in range(LAYERS):
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = torch.randn(heads * 16)
        tensors[f"model.layers.{layer}.self_attn.o_proj.bias"] = torch.randn(HIDDEN)
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", tensors))
    assert checkpoint.config.qkv_bias
    assert checkpoint.config.o_bias
    for name, tensor in tensors.items():
        assert torch.equal(checkpoint.tensor(name, tuple(tensor.shape)).data, tensor), name


def test_the_gate_catches_rows_left_interleaved(tmp_path: Path) -> None:
    tensors = llama_tensors()
    # The same weights in a file of an architecture that is not permuted, and the other way round.
    stored = interleave(tensors[Q_PROJ].numpy(), HEADS)
    assert not np.array_equal(stored, tensors[Q_PROJ].numpy())
    back = torch.from_numpy(stored)[rotary_rows(HEADS, HEAD_DIM)]
    assert torch.equal(back, tensors[Q_PROJ])


def test_smollm2_equals_transformers_own_load() -> None:
    """Names and weights against transformers' GGUF loader, which permutes and dequantises alone."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = smollm2_path()
    with torch.device("meta"):
        dummy = LlamaForCausalLM(
            LlamaConfig(
                num_hidden_layers=30,
                hidden_size=576,
                intermediate_size=1536,
                num_attention_heads=9,
                num_key_value_heads=3,
                vocab_size=49152,
                tie_word_embeddings=True,
            )
        )
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=dummy)["tensors"]
    checkpoint = GgufCheckpoint(path)
    shapes = tensor_shapes(checkpoint.config)
    assert set(checkpoint.names()) == theirs.keys() - {"lm_head.weight"}
    for name in checkpoint.names():
        assert torch.equal(checkpoint.tensor(name, shapes[name]).float(), theirs[name]), name


def test_smollm2_says_what_it_is() -> None:
    checkpoint = GgufCheckpoint(smollm2_path())
    tokenizer = checkpoint.tokenizer()
    assert checkpoint.quantization == "Q4_1 (210), F32 (61), Q8_0 (1)"
    assert checkpoint.nbytes == 96_576_768
    config = checkpoint.config
    assert config.tied
    assert (config.num_parameters, config.max_position) == (134515008, 8192)
    assert config.rotary == RotaryConfig(100000.0)
    # <|im_end|>, <|endoftext|>, and <reponame>, before which a file of code ends.
    assert (config.bos_id, config.eos_ids) == (1, (2, 0, 4))
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_ids == (2, 0, 4)
    messages = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.encode_chat(messages)
    assert tokenizer.render_chat(messages).endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == 1
    assert ids.count(1) == 3


def test_tokenizer_of_a_file(tmp_path: Path) -> None:
    tokenizer = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", llama_tensors())).tokenizer()
    assert tokenizer.encode("ab!", add_special=True) == [3, 4, 39]
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}]) == [3, 2]
    assert tokenizer.special_ids == {0, 1, 2}

    def begins(writer: GGUFWriter) -> None:
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)

    path = write_gguf(tmp_path / "b.gguf", llama_tensors(), extra=begins)
    tokenizer = GgufCheckpoint(path).tokenizer()
    assert tokenizer.encode("a", add_special=True) == [1, 3, 0]
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}]) == [3, 2]


def replace(key: str, add: Callable[[GGUFWriter], None]) -> Callable[[GGUFWriter], None]:
    """A change to a file: drop a key, then add what ``add`` adds."""

    def change(writer: GGUFWriter) -> None:
        for table in writer.kv_data:
            table.pop(key, None)
        add(writer)

    return change


def nothing(_: GGUFWriter) -> None:
    """Add nothing."""


def rope(**values: object) -> Callable[[GGUFWriter], None]:
    """Rotary metadata of the llama architecture."""

    def change(writer: GGUFWriter) -> None:
        for name, value in values.items():
            key = "llama.rope." + name.replace("__", ".")
            if isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            else:
                writer.add_float32(key, float(str(value)))

    return change


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (rope(scaling__type="none"), RotaryConfig(20000.0)),
        (rope(scaling__type="linear", scaling__factor=2.0), RotaryConfig(20000.0, "linear", 2.0)),
        (rope(scaling__factor=4.0), RotaryConfig(20000.0, "linear", 4.0)),
        (rope(scale_linear=8.0), RotaryConfig(20000.0, "linear", 8.0)),
        (
            rope(scaling__type="yarn", scaling__factor=4.0, scaling__original_context_length=128),
            RotaryConfig(20000.0, "yarn", 4.0, 128),
        ),
        (
            rope(
                scaling__type="yarn",
                scaling__factor=4.0,
                scaling__yarn_beta_fast=16.0,
                scaling__yarn_beta_slow=2.0,
            ),
            RotaryConfig(20000.0, "yarn", 4.0, 512, beta_fast=16.0, beta_slow=2.0),
        ),
    ],
)
def test_rotary_scaling(
    tmp_path: Path, change: Callable[[GGUFWriter], None], wanted: RotaryConfig
) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change)
    assert GgufCheckpoint(path).config.rotary == wanted


def test_a_stored_attention_factor_multiplies_the_derived_one(tmp_path: Path) -> None:
    change = rope(scaling__type="yarn", scaling__factor=4.0, scaling__attn_factor=0.5)
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change)
    factor = GgufCheckpoint(path).config.rotary.attention_factor
    assert factor == pytest.approx(0.5 * (1 + 0.1 * np.log(4.0)))


def rope_freqs(factors: np.ndarray) -> Callable[[GGUFWriter], None]:
    return lambda writer: writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))


def llama3(factor: float, original: int) -> RotaryConfig:
    return RotaryConfig(
        20000.0, "llama3", factor, original, low_freq_factor=1.0, high_freq_factor=4.0
    )


def test_llama3_factors_are_those_of_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    table = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=131072,
        rope_parameters=table,
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / (500000.0 ** (torch.arange(0, 128, 2).double() / 128))
    rotary = RotaryConfig(500000.0, "llama3", 8.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0)
    assert torch.allclose(plain / scaled.double(), llama3_factors(rotary, 128), rtol=1e-5)


def test_llama3_scaling_is_recovered_from_its_factors(tmp_path: Path) -> None:
    wanted = llama3(8.0, 8192)
    factors = llama3_factors(wanted, HEAD_DIM).numpy()
    assert any(1.0 < factor < 8.0 for factor in factors)
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=rope_freqs(factors))
    checkpoint = GgufCheckpoint(path)
    assert checkpoint.config.rotary == wanted
    assert "rope_freqs.weight" not in checkpoint.names()

    def other(writer: GGUFWriter) -> None:
        rope(scaling__original_context_length=256)(writer)
        rope_freqs(llama3_factors(llama3(4.0, 256), HEAD_DIM).numpy())(writer)

    path = write_gguf(tmp_path / "o.gguf", llama_tensors(), extra=other)
    assert GgufCheckpoint(path).config.rotary == llama3(4.0, 256)


def test_other_frequency_factors_divide_the_frequencies(tmp_path: Path) -> None:
    factors = llama3_factors(llama3(8.0, 8192), HEAD_DIM).numpy()
    for other in (factors * np.linspace(1, 1.01, 8), np.full(8, 0.5), np.linspace(1, 9, 8)):
        stored = other.astype(np.float32)
        path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=rope_freqs(stored))
        rotary = GgufCheckpoint(path).config.rotary
        assert rotary == RotaryConfig(20000.0, "divided", divisors=tuple(stored.tolist()))
        angles, scale = frequencies_of(rotary, HEAD_DIM)
        plain = 20000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        assert np.allclose(angles * stored, plain, rtol=1e-12)
        assert scale == 1.0


def test_frequency_factors_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for wrong, part in (
        (np.ones(4), r"must be F32 of shape \[8\], not \[4\]"),
        (np.array([1, 1, 1, 0, 1, 1, 1, 1]), "must hold finite numbers above 0"),
        (np.array([1, 1, 1, -2, 1, 1, 1, 1]), "must hold finite numbers above 0"),
        (np.array([1, 1, 1, np.nan, 1, 1, 1, 1]), "must hold finite numbers above 0"),
        (np.array([1, 1, 1, np.inf, 1, 1, 1, 1]), "must hold finite numbers above 0"),
    ):
        path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=rope_freqs(wrong))
        with pytest.raises(ModelError, match=f"tensor rope_freqs.weight .*{part}"):
            GgufCheckpoint(path)


def test_a_window_covers_every_llama_layer(tmp_path: Path) -> None:
    def change(writer: GGUFWriter) -> None:
        writer.add_uint32("llama.attention.sliding_window", 32)

    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change)
    assert GgufCheckpoint(path).config.windows == (32, 32)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (
            replace("general.architecture", lambda w: w.add_string("general.architecture", "bert")),
            "field general.architecture must be one of llama, qwen2, qwen3, not 'bert'",
        ),
        (lambda w: w.add_uint16("split.count", 3), "is one of 3 parts of a split model; merge"),
        (
            replace("llama.block_count", nothing),
            "field llama.block_count is missing; it must be an integer of at least 1",
        ),
        (
            replace(
                "llama.embedding_length", lambda w: w.add_string("llama.embedding_length", "x")
            ),
            "field llama.embedding_length must be an integer of at least 1, not 'x'",
        ),
        (
            replace(
                "llama.embedding_length", lambda w: w.add_uint32("llama.embedding_length", 128)
            ),
            r"tensor token_embd.weight has shape \[40, 64\], expected \[vocabulary, 128\]",
        ),
        (
            replace(
                "llama.attention.head_count_kv",
                lambda w: w.add_uint32("llama.attention.head_count_kv", 3),
            ),
            "field llama.attention.head_count_kv must be a divisor of 4 heads, not 3",
        ),
        (
            lambda w: w.add_uint32("llama.attention.key_length", 32),
            r"q_proj.weight \(blk.0.attn_q.weight\) has shape \[64, 64\], expected \[128, 64\]",
        ),
        (
            lambda w: w.add_uint32("llama.rope.dimension_count", 8),
            "field llama.rope.dimension_count must be the head width 16, not 8",
        ),
        (
            lambda w: w.add_uint32("llama.attention.value_length", 8),
            "field llama.attention.value_length must be the head width 16, not 8",
        ),
        (
            replace("llama.block_count", lambda w: w.add_uint32("llama.block_count", 1)),
            r"tensor blk.1.\w+.weight has no place in a llama decoder of 1 layers",
        ),
        (
            replace("llama.block_count", lambda w: w.add_uint32("llama.block_count", 3)),
            "tensor model.layers.2.input_layernorm.weight is missing",
        ),
        (
            lambda w: w.add_tensor("blk.0.ffn_gate_inp.weight", np.zeros((2, 64), np.float32)),
            "tensor blk.0.ffn_gate_inp.weight has no place in a llama decoder",
        ),
        (
            lambda w: w.add_uint32("llama.expert_count", 8),
            "field llama.expert_count must be 0: mixtures of experts are not supported, not 8",
        ),
        (
            lambda w: w.add_float32("llama.logit_scale", 2.0),
            "field llama.logit_scale must be absent: .*, not 2.0",
        ),
        (rope(scaling__type="longrope"), "scaling.type must be one of none, linear, yarn, not 'lo"),
        (rope(scaling__factor=0.5), "field llama.rope.scaling.factor must be a number of at least"),
    ],
)
def test_refusals(tmp_path: Path, change: Callable[[GGUFWriter], None], part: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change)
    with pytest.raises(ModelError, match=f"^{path}: .*{part}") as caught:
        GgufCheckpoint(path)
    assert "\n" not in str(caught.value)


def test_unsupported_tensor_types_are_refused_by_name(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["lm_head.weight"]

    def change(writer: GGUFWriter) -> None:
        kind = GGMLQuantizationType.IQ4_NL
        writer.add_tensor("output.weight", np.zeros((VOCAB, 36), np.uint8), raw_dtype=kind)

    path = write_gguf(tmp_path / "m.gguf", tensors, extra=change)
    with pytest.raises(ModelError, match=r"output\.weight is stored as IQ4_NL; supported are F32"):
        GgufCheckpoint(path)


def test_shapes_asked_for_are_checked(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", llama_tensors()))
    with pytest.raises(ModelError, match=r"has shape \[64, 64\], expected \[64, 65\]"):
        checkpoint.tensor(Q_PROJ, (64, 65))
    with pytest.raises(ModelError, match=r"tensor model\.layers\.9\.x is missing"):
        checkpoint.tensor("model.layers.9.x", (1,))


def test_tied_models_have_no_output_tensor(tmp_path: Path) -> None:
    tensors = llama_tensors()
    del tensors["lm_head.weight"]
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", tensors))
    assert checkpoint.config.tied
    assert "lm_head.weight" not in checkpoint.names()


def test_qwen_files_do_not_say_which_layers_have_a_window(tmp_path: Path) -> None:
    def change(writer: GGUFWriter) -> None:
        writer.add_uint32("qwen2.attention.sliding_window", 32)

    path = write_gguf(tmp_path / "m.gguf", family("qwen2"), "qwen2", extra=change)
    with pytest.raises(ModelError, match=r"field qwen2\.attention.sliding_window must be absent"):
        GgufCheckpoint(path)


@pytest.mark.parametrize(
    ("key", "add", "part"),
    [
        ("model", nothing, "field tokenizer.ggml.model is missing"),
        ("tokens", nothing, "field tokenizer.ggml.tokens is missing"),
        (
            "token_type",
            lambda w: w.add_token_types([1, 1]),
            "token_type must have 40 entries, not 2",
        ),
        (
            "bos_token_id",
            lambda w: (w.add_add_bos_token(True), w.add_bos_token_id(99)),
            "add_bos_token must be false, since field .*bos_token_id is 99, but there are 40 tok",
        ),
    ],
)
def test_tokenizer_refusals(
    tmp_path: Path, key: str, add: Callable[[GGUFWriter], None], part: str
) -> None:
    change = replace(f"tokenizer.ggml.{key}", add)
    path = write_gguf(tmp_path / "m.gguf", llama_tensors(), extra=change)
    checkpoint = GgufCheckpoint(path)
    with pytest.raises(ModelError, match=f"^{path}: .*{part}"):
        checkpoint.tokenizer()


def test_signature_depends_on_weights_and_format(tmp_path: Path) -> None:
    def signature(name: str, seed: int, label: str) -> str:
        path = write_gguf(tmp_path / name, llama_tensors(seed), quantised=label)
        with GgufCheckpoint(path) as checkpoint:
            return checkpoint.signature

    base = signature("a", 0, "Q8_0")
    assert signature("b", 0, "Q8_0") == base
    assert len({base, signature("c", 1, "Q8_0"), signature("d", 0, "Q4_0")}) == 3


def test_names() -> None:
    assert canonical_name("blk.12.ffn_down.weight") == "model.layers.12.mlp.down_proj.weight"
    assert canonical_name("blk.3.attn_q.bias") == "model.layers.3.self_attn.q_proj.bias"
    assert canonical_name("output_norm.weight") == "model.norm.weight"
    for foreign in ("blk.0.ssm_a", "blk.x.attn_q.weight", "v.blk.0.attn_q.weight", "rope_freqs"):
        assert canonical_name(foreign) is None
