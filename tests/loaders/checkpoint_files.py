"""Writes small checkpoints: Hugging Face folders and GGUF files of the same model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import save_file

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 64, 96, 2, 4, 2, 16, 40

LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "rope_theta": 20000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

INNER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def llama_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights of the tiny llama, under their Hugging Face names, float32."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tensors = {
        "model.embed_tokens.weight": random(VOCAB, HIDDEN),
        "model.norm.weight": random(HIDDEN),
        "lm_head.weight": random(VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = random(HIDDEN)
        tensors[prefix + "post_attention_layernorm.weight"] = random(HIDDEN)
        tensors[prefix + "self_attn.q_proj.weight"] = random(HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.k_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.v_proj.weight"] = random(KV_HEADS * HEAD_DIM, HIDDEN)
        tensors[prefix + "self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD_DIM)
        tensors[prefix + "mlp.gate_proj.weight"] = random(INNER, HIDDEN)
        tensors[prefix + "mlp.up_proj.weight"] = random(INNER, HIDDEN)
        tensors[prefix + "mlp.down_proj.weight"] = random(HIDDEN, INNER)
    return tensors


def write_folder(
    path: Path,
    config: Mapping[str, object],
    tensors: Mapping[str, torch.Tensor],
    shards: int = 1,
) -> Path:
    """Write config.json and the weights, in one file or in several with an index."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(dict(tensors), path / "model.safetensors")
        return path
    weight_map: dict[str, str] = {}
    names = sorted(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, path / file)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def gguf_name(name: str) -> str:
    """Name in a GGUF file of a tensor with a Hugging Face name."""
    outer = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outer:
        return outer[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{INNER_NAMES[part]}.{kind}"


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Row order of q and k in a llama file: the halves of each head, one row from each in turn."""
    rows = []
    for head in np.split(weight, heads):
        lower, upper = np.split(head, 2)
        for pair in zip(lower, upper, strict=True):
            rows.extend(pair)
    return np.stack(rows)


def base_metadata(writer: GGUFWriter, architecture: str) -> None:
    """Write the configuration of the tiny model."""
    writer.add_uint32(f"{architecture}.block_count", LAYERS)
    writer.add_uint32(f"{architecture}.context_length", 512)
    writer.add_uint32(f"{architecture}.embedding_length", HIDDEN)
    writer.add_uint32(f"{architecture}.feed_forward_length", INNER)
    writer.add_uint32(f"{architecture}.attention.head_count", HEADS)
    writer.add_uint32(f"{architecture}.attention.head_count_kv", KV_HEADS)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{architecture}.rope.freq_base", 20000.0)


def tokenizer_metadata(writer: GGUFWriter) -> None:
    """Write a byte-level vocabulary of VOCAB tokens with two control tokens."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHĠĊ!"
    tokens = ["<|x|>", "<s>", "<|im_end|>", *letters]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>")


def write_gguf(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    architecture: str = "llama",
    quantised: str = "F32",
    extra: Callable[[GGUFWriter], None] | None = None,
) -> Path:
    """Write a GGUF file as llama.cpp's converter does; matrices take the format ``quantised``.

    Args:
        path: the file.
        tensors: weights under their Hugging Face names.
        architecture: q and k rows are interleaved for "llama" only.
        quantised: format of the matrices whose rows it fits; vectors stay F32.
        extra: adds or overrides metadata and tensors.
    """
    writer = GGUFWriter(path, architecture)
    base_metadata(writer, architecture)
    tokenizer_metadata(writer)
    kind = GGMLQuantizationType[quantised]
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        heads = {"q": HEADS, "k": KV_HEADS}.get(name.partition("self_attn.")[2][:1])
        if architecture == "llama" and heads and "_proj." in name:
            array = interleave(array, heads)
        stored = gguf_name(name)
        if array.ndim == 2 and quantised != "F32":
            data = quantize(array, kind)
            writer.add_tensor(stored, data, raw_dtype=kind)
        else:
            writer.add_tensor(stored, array)
    if extra is not None:
        extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
