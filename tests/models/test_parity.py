"""Parity with transformers: tiny random checkpoints of each architecture, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.rows import Rows
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.models.dense import DenseModel

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama-bias": LlamaConfig(**SHAPE, attention_bias=True),
    "llama-llama3": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama-linear": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "llama-yarn": LlamaConfig(**SHAPE, rope_parameters=YARN),
    "mistral-window": MistralConfig(**SHAPE, sliding_window=40),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "qwen2-window": Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=24, max_window_layers=2
    ),
    "qwen3": Qwen3Config(**SHAPE, head_dim=24),
    "qwen3-window": Qwen3Config(
        **SHAPE, head_dim=16, use_sliding_window=True, sliding_window=24, max_window_layers=1
    ),
}


def checkpoint(folder: Path, config: Any) -> PreTrainedModel:
    """Write a random checkpoint whose logits are far from uniform."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, 0.25) if weight.dim() > 1 else weight.add_(
                torch.randn_like(weight) * 0.2
            )
            if name.endswith("embed_tokens.weight"):
                weight.mul_(4.0)
    model.eval().save_pretrained(folder)
    return model


def ours(folder: Path, ids: list[int], taps: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and taps of all positions, fed in uneven chunks."""
    loaded = HuggingFaceCheckpoint(folder)
    model = DenseModel(loaded.config, ReferenceKernels(), loaded.tensor, 512)
    pool = PagePool(model.allocate(16, "float32"))
    cache = PagedCache(pool)
    logits, tapped, first = [], [], 0
    for count in (70, 1, 9, len(ids) - 80):
        rows = Rows((cache.stage(count),))
        chunk = torch.tensor(ids[first : first + count])
        out = model.forward(chunk, rows, pool.store, torch.arange(count), taps)
        cache.commit(count)
        logits.append(model.logits(out.hidden))
        assert out.taps is not None
        tapped.append(out.taps)
        first += count
    return torch.cat(logits), torch.cat(tapped)


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("name", list(CONFIGS))
def test_logits_taps_and_greedy_tokens(name: str, tmp_path: Path) -> None:
    theirs = checkpoint(tmp_path, CONFIGS[name])
    ids = torch.randint(3, 97, (130,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids]), output_hidden_states=True)
    taps = (-1, 0, 2)
    logits, tapped = ours(tmp_path, ids, taps)
    assert distance(logits, expected.logits[0]) < 1e-4
    assert torch.equal(logits.argmax(-1), expected.logits[0].argmax(-1))
    # A tap is the raw residual output of its layer: hidden_states[id + 1].
    wanted = torch.cat([expected.hidden_states[tap + 1][0] for tap in taps], dim=-1)
    assert distance(tapped, wanted) < 1e-4
    shifted = torch.cat([expected.hidden_states[tap + 2][0] for tap in (-1, 0, 1)], dim=-1)
    assert distance(tapped, shifted) > 1e-2, "taps off by one layer must show"


@pytest.mark.parametrize("name", ["llama-yarn", "qwen3-window", "llama-llama3", "qwen2"])
def test_parity_catches_planted_faults(name: str, tmp_path: Path) -> None:
    theirs = checkpoint(tmp_path, CONFIGS[name])
    config = (tmp_path / "config.json").read_text()
    faults = {
        "llama-yarn": ('"factor": 4.0', '"factor": 5.0'),
        "qwen3-window": ('"sliding_window": 24', '"sliding_window": 25'),
        "llama-llama3": ('"high_freq_factor": 4.0', '"high_freq_factor": 5.0'),
        "qwen2": ('"rms_norm_eps": 1e-06', '"rms_norm_eps": 0.01'),
    }
    before, after = faults[name]
    assert before in config
    (tmp_path / "config.json").write_text(config.replace(before, after))
    ids = torch.randint(3, 97, (130,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    assert distance(ours(tmp_path, ids, (0,))[0], expected) > 1e-3
