"""The tiny random targets as checkpoint folders."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from outrider.config.model import ModelConfig
from outrider.loaders.checkpoint import tensor_shapes
from support.tiny import EOS, TINY, random_weight, tiny_tokenizer

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def tiny_folder(path: Path, config: ModelConfig = TINY, **changes: object) -> Path:
    """Write a target of ``support.tiny`` without windows; ``changes`` go to its config.json."""
    path.mkdir(parents=True, exist_ok=True)
    fields: dict[str, object] = {
        "architectures": [CLASSES[config.architecture]],
        "model_type": config.architecture,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rotary.theta,
        "max_position_embeddings": config.max_position,
        "tie_word_embeddings": config.tied,
        "eos_token_id": EOS,
    }
    (path / "config.json").write_text(json.dumps(fields | changes))
    tensors = {
        name: random_weight(name, shape).float() for name, shape in tensor_shapes(config).items()
    }
    save_file(tensors, path / "model.safetensors")
    tiny_tokenizer(config.vocab_size)._backend.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return path
