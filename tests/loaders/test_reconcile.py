"""Folders whose configuration and tensors disagree: what transformers does, and one warning."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_files import HEAD_DIM, LAYERS, LLAMA, llama_tensors, write_folder

from outrider.kernels.reference import ReferenceKernels
from outrider.loaders.huggingface import HuggingFaceCheckpoint
from outrider.models.dense import DenseModel
from outrider.types.errors import ModelError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TIED = {**LLAMA, "tie_word_embeddings": True}
Tensors = dict[str, torch.Tensor]


def same_head() -> Tensors:
    return llama_tensors() | {HEAD: llama_tensors()[EMBEDDING]}


def without(*names: str) -> Tensors:
    return {name: tensor for name, tensor in llama_tensors().items() if name not in names}


def in_layers(names: dict[str, int]) -> Tensors:
    extra = {
        f"model.layers.{layer}.self_attn.{name}": torch.full((size,), 3.0)
        for layer in range(LAYERS)
        for name, size in names.items()
    }
    return llama_tensors() | extra


def half_embedding() -> Tensors:
    """The embedding in another type than the head, every value equal."""
    rounded = llama_tensors()[EMBEDDING].bfloat16()
    return llama_tensors() | {EMBEDDING: rounded, HEAD: rounded.float()}


BIASES = {"q_proj.bias": 64, "k_proj.bias": 32, "v_proj.bias": 32, "o_proj.bias": 64}
NORMS = {"q_norm.weight": HEAD_DIM, "k_norm.weight": HEAD_DIM}
#: Configuration, tensors, whether the head is tied, and what the warning says; None for none.
CASES: dict[str, tuple[dict[str, object], Tensors, bool, str | None]] = {
    "as it should be": (LLAMA, llama_tensors(), False, None),
    "tied, no head": (TIED, without(HEAD), True, None),
    "tied, an equal head": (TIED, same_head(), True, None),
    "tied, an equal head of another type": (TIED, half_embedding(), True, None),
    "tied, another head": (TIED, llama_tensors(), False, "lm_head.weight is not model.embed"),
    "tied, only a head": (TIED, without(EMBEDDING), True, "model.embed_tokens.weight is missing"),
    "untied, an equal head": (LLAMA, same_head(), False, None),
    "fewer layers": (
        {**LLAMA, "num_hidden_layers": 1},
        llama_tensors(),
        False,
        "model.layers.1.input_layernorm.weight and 8 more have no place in a llama decoder of 1",
    ),
    "biases": (LLAMA, in_layers(BIASES), False, "bias and 7 more have no place"),
    "norms of q and k": (LLAMA, in_layers(NORMS), False, "k_norm.weight and 3 more have no place"),
    "a stray tensor": (
        LLAMA,
        llama_tensors() | {"model.extra": torch.zeros(2)},
        False,
        "model.extra has no place in a llama decoder of 2 layers and is left out",
    ),
    "names of the base model": (
        LLAMA,
        {name.removeprefix("model."): tensor for name, tensor in llama_tensors().items()},
        False,
        None,
    ),
    "computed tensors": (
        LLAMA,
        llama_tensors() | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)},
        False,
        None,
    ),
}


def logits(folder: Path) -> torch.Tensor:
    """Of the tokens 1 .. 6, computed by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        result: torch.Tensor = model(torch.arange(1, 7)[None]).logits[0]
    return result


def our_logits(folder: Path) -> torch.Tensor:
    from outrider.caches.paged import PagedCache
    from outrider.caches.pool import PagePool
    from outrider.kernels.rows import Rows

    with HuggingFaceCheckpoint(folder) as checkpoint:
        model = DenseModel(checkpoint.config, ReferenceKernels(), checkpoint.tensor, 16)
    pool = PagePool(model.allocate(2, "float32"))
    rows = Rows((PagedCache(pool).stage(6),))
    return model.logits(model.forward(torch.arange(1, 7), rows, pool.store, torch.arange(6)).hidden)


@pytest.mark.parametrize("name", CASES)
def test_what_transformers_would_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    config, tensors, tied, warning = CASES[name]
    folder = write_folder(tmp_path / "m", config, tensors)
    with caplog.at_level(logging.WARNING, logger="outrider"):
        checkpoint = HuggingFaceCheckpoint(folder)
    said = [record.getMessage() for record in caplog.records if record.name == "outrider"]
    assert len(said) == (warning is not None)
    assert warning is None or warning in said[0]
    assert all("\n" not in line for line in said)
    assert checkpoint.config.tied == tied
    assert torch.allclose(our_logits(folder), logits(folder), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        (LLAMA, without(HEAD), "tensor lm_head.weight is missing, though tie_word_embeddings is"),
        (TIED, without(EMBEDDING, HEAD), "tensor model.embed_tokens.weight is missing"),
        ({**LLAMA, "num_hidden_layers": 3}, llama_tensors(), r"model\.layers\.2\.\S+ is missing"),
        ({**LLAMA, "attention_bias": True}, llama_tensors(), r"q_proj\.bias is missing"),
        (
            {**LLAMA, "vocab_size": 50},
            llama_tensors(),
            r"has shape \[40, 64\], expected \[50, 64\]",
        ),
        (
            {**LLAMA, "vocab_size": 30},
            llama_tensors(),
            r"has shape \[40, 64\], expected \[30, 64\]",
        ),
        ({**TIED, "vocab_size": 50}, llama_tensors(), r"shape \[40, 64\], expected \[50, 64\]"),
        ({**LLAMA, "head_dim": 32}, llama_tensors(), r"has shape \[64, 64\], expected \[128, 64\]"),
    ],
)
def test_what_nobody_could_serve(
    tmp_path: Path, config: dict[str, object], tensors: Tensors, message: str
) -> None:
    folder = write_folder(tmp_path / "m", config, tensors)
    with pytest.raises(ModelError, match=message) as caught:
        HuggingFaceCheckpoint(folder)
    assert "\n" not in str(caught.value)


def test_one_warning_names_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_folder(tmp_path / "m", TIED, in_layers(BIASES))
    HuggingFaceCheckpoint(folder)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "tie_word_embeddings is true" in line
    assert "bias and 7 more" in line
    assert line.startswith(f"{folder}: config.json and the tensors disagree: ")


def test_a_text_model_inside_another_configuration(tmp_path: Path) -> None:
    outer: dict[str, Any] = {"model_type": "llava", "vision_config": {}, "text_config": LLAMA}
    folder = write_folder(tmp_path / "m", outer, llama_tensors())
    assert HuggingFaceCheckpoint(folder).config.hidden_size == LLAMA["hidden_size"]
