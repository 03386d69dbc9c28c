"""Hugging Face folders: configurations and weights that transformers wrote, and every fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoint_files import LLAMA, llama_tensors, write_folder
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, processors

from outrider.loaders.checkpoint import tensor_shapes
from outrider.loaders.hf_config import read_config
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.types.errors import ModelError, OutriderError, RequestError

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 128}
CASES: list[tuple[str, dict[str, object]]] = [
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True, "attention_bias": True, "head_dim": 16}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 9e3}}),
    ("mistral", {"sliding_window": 16}),
    ("mistral", {"sliding_window": None}),
    ("qwen2", {"tie_word_embeddings": True, "rope_parameters": {**YARN, "rope_theta": 1e6}}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    ("qwen3", {"head_dim": 16}),
    (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "extra"), CASES)
def test_what_transformers_wrote_comes_back(
    tmp_path: Path, kind: str, extra: dict[str, object], dtype: torch.dtype
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{**TINY, **extra})
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    checkpoint = HuggingFaceCheckpoint(tmp_path)
    ours = checkpoint.config
    assert ours.architecture == kind
    assert (ours.hidden_size, ours.intermediate_size, ours.num_layers) == (32, 48, 3)
    assert (ours.num_heads, ours.num_kv_heads, ours.vocab_size) == (4, 2, 50)
    assert ours.head_dim == (model.model.layers[0].self_attn.head_dim)
    assert ours.tied == bool(config.tie_word_embeddings)
    assert ours.max_position == (512 if ours.rotary.kind == "linear" else 256)
    assert ours.rms_eps == 1e-6
    assert ours.rotary.theta == config.rope_parameters["rope_theta"]
    assert ours.rotary.kind == config.rope_parameters["rope_type"]
    windows = [getattr(layer.self_attn, "sliding_window", None) for layer in model.model.layers]
    if kind == "mistral":
        windows = [config.sliding_window] * 3
    assert list(ours.windows) == windows
    state = model.state_dict()
    shapes = tensor_shapes(ours)
    assert set(checkpoint.names()) == state.keys() - ({"lm_head.weight"} if ours.tied else set())
    for name in checkpoint.names():
        weight = checkpoint.tensor(name, shapes[name])
        assert weight.data.dtype == dtype
        assert torch.equal(weight.data, state[name])
    label = {torch.float32: "F32", torch.bfloat16: "BF16"}[dtype]
    assert checkpoint.quantization == f"{label} ({len(shapes)})"
    biases = sum(state[name].numel() for name in state if name.endswith("bias"))
    norms = sum(state[name].numel() for name in state if "q_norm" in name or "k_norm" in name)
    assert checkpoint.nbytes == (ours.num_parameters + biases + norms) * dtype.itemsize


def test_window_layers_are_counted_from_max_window_layers(tmp_path: Path) -> None:
    from transformers import Qwen2Config

    for start in range(4):
        spelled = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": start}
        theirs = Qwen2Config(**TINY, **spelled)
        folder = tmp_path / str(start)
        theirs.save_pretrained(folder)
        values = json.loads((folder / "config.json").read_text())
        assert values.pop("layer_types") == theirs.layer_types
        (folder / "config.json").write_text(json.dumps(values))
        wanted = [8 if kind == "sliding_attention" else None for kind in theirs.layer_types]
        assert list(read_config(folder).windows) == wanted


def test_a_missing_mistral_window_has_the_default_and_null_has_none(tmp_path: Path) -> None:
    mistral = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    for extra, wanted in (({}, 4096), ({"sliding_window": None}, None), ({"sliding_window": 7}, 7)):
        (tmp_path / "config.json").write_text(json.dumps({**mistral, **extra}))
        assert read_config(tmp_path).windows == (wanted, wanted)


def tiny(path: Path, without: tuple[str, ...] = (), **changes: object) -> Path:
    config = {key: value for key, value in {**LLAMA, **changes}.items() if key not in without}
    return write_folder(path / "m", config, llama_tensors())


def test_eos_ids_come_from_the_generation_settings_first(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    assert HuggingFaceCheckpoint(folder).config.eos_ids == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 7, 5]}')
    assert HuggingFaceCheckpoint(folder).config.eos_ids == (5, 7)
    (folder / "generation_config.json").write_text('{"eos_token_id": null}')
    assert HuggingFaceCheckpoint(folder).config.eos_ids == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(ModelError, match=r"generation_config\.json: field eos_token_id must be"):
        HuggingFaceCheckpoint(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gpt_neox"},
            "field model_type must be one of llama, mistral, qwen2, qwen3, not 'gpt_neox'",
        ),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            r'field architectures must be \["LlamaForCausalLM"\], not',
        ),
        ({"hidden_size": "64"}, "field hidden_size must be an integer of at least 1, not '64'"),
        ({"hidden_size": 0}, "field hidden_size must be an integer of at least 1, not 0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must be a divisor of 4 attention heads"),
        ({"num_attention_heads": 6, "num_key_value_heads": 2}, "a divisor of hidden_size 64"),
        ({"head_dim": 15}, "field head_dim must be even, not 15"),
        ({"rms_norm_eps": -1}, "field rms_norm_eps must be a finite number above 0, not -1"),
        ({"hidden_act": "gelu"}, "field hidden_act must be silu, not 'gelu'"),
        ({"mlp_bias": True}, "field mlp_bias must be false: .*, not True"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false, not 'no'"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "field quantization_config: weights quantised by fp8 are not supported",
        ),
        ({"rope_scaling": {"type": "ntk"}}, "field rope_scaling.type must be one of .*, not 'ntk'"),
    ],
)
def test_nonsense_values(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    folder = tiny(tmp_path, **changes)
    with pytest.raises(ModelError, match=f"^{folder}/config.json: .*{message}") as caught:
        HuggingFaceCheckpoint(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "rms_norm_eps",
        "max_position_embeddings",
    ],
)
def test_missing_fields(tmp_path: Path, name: str) -> None:
    folder = tiny(tmp_path, without=(name,))
    with pytest.raises(ModelError, match=f"config.json: field {name} is missing; it must be "):
        HuggingFaceCheckpoint(folder)


def test_layer_types_must_fit(tmp_path: Path) -> None:
    qwen = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    folder = tiny(tmp_path, **qwen, layer_types=["full_attention"])
    with pytest.raises(ModelError, match="field layer_types must be a list of 2 times"):
        HuggingFaceCheckpoint(folder)
    folder = tiny(tmp_path, **qwen, layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(ModelError, match="field layer_types must be full_attention throughout"):
        HuggingFaceCheckpoint(folder)


def faulty(path: Path, change: str, **config: object) -> str:
    """Open the tiny llama after one change to its tensors; return the message."""
    tensors = llama_tensors()
    key = "model.layers.1.self_attn.k_proj.weight"
    if change == "missing":
        del tensors[key]
    elif change == "shape":
        tensors[key] = torch.zeros(64, 64)
    elif change == "dtype":
        tensors[key] = tensors[key].double()
    elif change == "int8":
        tensors[key] = tensors[key].to(torch.int8)
    elif change == "head":
        del tensors["lm_head.weight"]
    folder = write_folder(path / change, {**LLAMA, **config}, tensors)
    with pytest.raises(OutriderError) as caught:
        HuggingFaceCheckpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}")


def test_tensor_faults_name_the_tensor_and_both_values(tmp_path: Path) -> None:
    key = "tensor model.layers.1.self_attn.k_proj.weight"
    assert faulty(tmp_path, "missing") == f": {key} is missing"
    assert faulty(tmp_path, "shape") == (
        f"/model.safetensors: {key} has shape [64, 64], expected [32, 64]"
    )
    assert f"{key} is stored as F64; supported are" in faulty(tmp_path, "dtype")
    assert f"{key} is stored as I8; supported are" in faulty(tmp_path, "int8")
    assert faulty(tmp_path, "head").startswith(
        ": tensor lm_head.weight is missing, though tie_word_embeddings is not true"
    )


def test_old_exports_with_computed_tensors_open(tmp_path: Path) -> None:
    tensors = llama_tensors()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    checkpoint = HuggingFaceCheckpoint(write_folder(tmp_path / "m", LLAMA, tensors))
    assert len(checkpoint.names()) == len(llama_tensors())


def test_signature_tells_models_apart(tmp_path: Path) -> None:
    def signature(name: str, seed: int, **config: object) -> str:
        folder = write_folder(tmp_path / name, {**LLAMA, **config}, llama_tensors(seed))
        with HuggingFaceCheckpoint(folder) as checkpoint:
            return checkpoint.signature

    base = signature("a", 0)
    assert base == signature("b", 0)
    assert len({base, signature("c", 1), signature("d", 0, rope_theta=5.0)}) == 3


def write_tokenizer(folder: Path, size: int = 8, **settings: object) -> None:
    """Write a word-level tokenizer of ``size`` tokens that begins texts with token 1."""
    backend = Backend(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["w1", "w2", "w3"])
    backend.post_processor = processors.TemplateProcessing("w1 $A", special_tokens=[("w1", 1)])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def test_tokenizer_with_its_settings(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    write_tokenizer(
        folder,
        bos_token={"content": "w1", "special": True},
        eos_token="w3",
        chat_template="{{ bos_token }} {{ messages[0].content }} {{ eos_token }}",
    )
    tokenizer = HuggingFaceCheckpoint(folder).tokenizer()
    assert tokenizer.bos_id == 1
    assert tokenizer.eos_ids == (2, 3)
    assert tokenizer.encode("w5 w6", add_special=True) == [1, 5, 6]
    messages = [{"role": "user", "content": "w7"}]
    assert tokenizer.encode_chat(messages) == [1, 7, 3]
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert HuggingFaceCheckpoint(folder).tokenizer().encode_chat(messages) == [7]


def test_named_templates_and_missing_ones(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    messages = [{"role": "user", "content": "w7"}]
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "w6"}]
    write_tokenizer(folder, chat_template=named)
    assert HuggingFaceCheckpoint(folder).tokenizer().encode_chat(messages) == [6]
    write_tokenizer(folder, chat_template=named[:1])
    with pytest.raises(ModelError, match="field chat_template must be a template, or a list"):
        HuggingFaceCheckpoint(folder).tokenizer()
    write_tokenizer(folder, chat_template=7)
    with pytest.raises(ModelError, match="field chat_template must be a string, not 7"):
        HuggingFaceCheckpoint(folder).tokenizer()
    write_tokenizer(folder)
    with pytest.raises(RequestError, match="has no chat template, so it cannot"):
        HuggingFaceCheckpoint(folder).tokenizer().encode_chat(messages)


def test_tokenizer_faults(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    with pytest.raises(ModelError, match=r"holds no tokenizer; tokenizer\.json is missing"):
        HuggingFaceCheckpoint(folder).tokenizer()
    (folder / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer: EOF"):
        HuggingFaceCheckpoint(folder).tokenizer()


def test_older_tokenizer_files_are_converted(tmp_path: Path) -> None:
    folder = tiny(tmp_path, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    config = json.loads((folder / "config.json").read_text())
    tensors = llama_tensors()
    for layer in range(2):
        for name, size in (("q", 64), ("k", 32), ("v", 32)):
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = torch.zeros(size)
    write_folder(folder, config, tensors)
    vocab = {token: index for index, token in enumerate(["a", "b", "ab", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    tokenizer = HuggingFaceCheckpoint(folder).tokenizer()
    assert tokenizer.encode("abb", add_special=False) == [2, 1]
