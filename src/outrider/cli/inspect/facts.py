"""Facts about models and drafters, read from their files without loading them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

from outrider.assembly.shipped import shipped_drafters
from outrider.config.drafter import DrafterConfig, MtpConfig
from outrider.config.kv import KvCacheDtype, KvDtype, kv_dtype
from outrider.config.model import ModelConfig
from outrider.config.rotary import RotaryConfig
from outrider.drafters.layouts import read_block_config, read_kind, read_mtp_config
from outrider.drafters.ngram import NgramDrafter
from outrider.kernels.rows import PAGE_TOKENS
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range
from outrider.kernels.weights import RawWeight
from outrider.loaders.checkpoint import EMBEDDING, Checkpoint, tensor_shapes
from outrider.loaders.fields import read_json
from outrider.loaders.safetensors import TensorFolder

#: Context length that memory is quoted for, unless the model's own is shorter.
QUOTED_CONTEXT = 2048
#: Rows of each matrix that are prepared to learn how an implementation stores it.
SAMPLE_ROWS = 64

Facts = dict[str, Any]


def describe_model(checkpoint: Checkpoint, kernels: Kernels, kv_choice: KvCacheDtype) -> Facts:
    """Return the facts about a model; weights are sampled, not loaded."""
    config = checkpoint.config
    dtype = kv_dtype(kv_choice, _quantized(checkpoint))
    per_token = _kv_bytes(kernels, config.num_layers, config, dtype)
    per_pass = _bytes_per_pass(checkpoint, kernels)
    context = min(QUOTED_CONTEXT, config.max_position)
    return {
        "kind": "model",
        "source": checkpoint.source,
        "architecture": config.architecture,
        "parameters": config.num_parameters,
        "layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "query_heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "attention": _attention(config.windows),
        "rotary": _rotary(config.rotary),
        "tied_embeddings": config.tied,
        "vocabulary": config.vocab_size,
        "context": config.max_position,
        "tensor_types": checkpoint.quantization,
        "stored_bytes": checkpoint.nbytes,
        "kernels": kernels.name,
        "kv_cache": f"{dtype} (auto)" if kv_choice == "auto" else dtype,
        "weight_bytes_per_pass": per_pass,
        "kv_bytes_per_token": per_token,
        "quoted_context": context,
        "memory_bytes": per_pass + context * per_token,
    }


def describe_built_in(name: str) -> Facts | None:
    """Return the facts about a drafter that has no checkpoint of its own; None for other names."""
    if name == "none":
        return {"kind": "none", "drafts": "nothing: plain decoding", **_NO_WEIGHTS}
    if name == "ngram":
        return _ngram_facts()
    if name == "auto":
        return {
            "kind": "auto",
            "drafts": "what is shipped for the model, with ngram in front; else ngram alone",
            "shipped": list(shipped_drafters()) or ["none"],
        }
    return None


_NO_WEIGHTS: Final[Facts] = {"parameters": 0, "draft_kv_bytes_per_token": 0}


def _ngram_facts() -> Facts:
    drafter = NgramDrafter()
    options = drafter.options
    return {
        "kind": drafter.name,
        "matches": f"suffixes of {options.longest} to {options.shortest} tokens",
        "window": options.window,
        "max_draft": drafter.max_draft,
        **_NO_WEIGHTS,
    }


def describe_drafter(folder: Path, kernels: Kernels) -> Facts:
    """Return the facts about a drafter checkpoint.

    Raises:
        OutriderError: it cannot be read.
    """
    fields = read_json(folder / "config.json")
    kind = read_kind(fields)
    tensors = TensorFolder(folder)
    sizes: Facts = {
        "parameters": sum(prod(tensors.shape(name)) for name in tensors.names()),
        "tensor_types": ", ".join(sorted({tensors.format(name) for name in tensors.names()})),
    }
    source: Facts = {"kind": kind, "source": str(folder)}
    if kind == "mtp":
        mtp = read_mtp_config(fields)
        sizes["draft_kv_bytes_per_token"] = _kv_bytes(kernels, 1, mtp, kernels.draft_kv_dtype)
        return source | _mtp_facts(mtp) | sizes
    learned_mask = any(name.startswith("mask_embedding") for name in tensors.names())
    block = read_block_config(fields, kind, learned_mask)
    kept = kernels.draft_kv_dtype
    sizes["draft_kv_bytes_per_token"] = _kv_bytes(kernels, block.num_layers, block, kept)
    return source | _block_facts(block) | sizes


def _shared_facts(config: DrafterConfig | MtpConfig, layers: int) -> Facts:
    """Facts that every learned drafter has."""
    return {
        "layers": layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "query_heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rotary": _rotary(config.rotary),
        "target_layers": config.num_target_layers or "not recorded",
        "vocabulary": config.vocab_size,
        "draft_vocabulary": config.draft_vocab_size,
        "context": config.max_position,
    }


def _block_facts(config: DrafterConfig) -> Facts:
    return _shared_facts(config, config.num_layers) | {
        "attention": _attention(config.windows),
        "causal_layers": sum(config.causal),
        "block_size": config.block_size,
        "row_shift": config.row_shift,
        "max_draft": config.max_draft,
        "taps": list(config.taps),
        "mask": "learned" if config.learned_mask else f"token {config.mask_token_id}",
        "markov_head": f"{config.markov_kind}, rank {config.markov_rank}"
        if config.markov_rank
        else "none",
        "confidence_head": config.confidence,
    }


def _mtp_facts(config: MtpConfig) -> Facts:
    return _shared_facts(config, 1) | {
        "attention": _attention((config.window,)),
        "max_draft": config.depth,
        "reads": f"the target's {config.target_state} hidden state",
    }


def _rotary(rotary: RotaryConfig) -> str:
    return f"{rotary.kind}, theta {rotary.theta:g}"


def _attention(windows: Sequence[int | None]) -> str:
    """Sum up the layers' attention windows in a phrase."""
    sizes = sorted({window for window in windows if window is not None})
    if not sizes:
        return "full"
    sliding = sum(window is not None for window in windows)
    return f"sliding over {', '.join(map(str, sizes))} in {sliding} of {len(windows)} layers"


def _kv_bytes(
    kernels: Kernels,
    layers: int,
    config: ModelConfig | DrafterConfig | MtpConfig,
    dtype: KvDtype,
) -> int:
    """Bytes of one token's keys and values in all layers."""
    store = kernels.allocate(layers, 1, config.num_kv_heads, config.head_dim, dtype)
    return store.page_nbytes // PAGE_TOKENS


def _quantized(checkpoint: Checkpoint) -> bool:
    """Whether any matrix is stored in blocks of integers, as ``DenseModel.quantized``."""
    shapes = tensor_shapes(checkpoint.config).items()
    return any(checkpoint.tensor(name, shape).quantized for name, shape in shapes)


def _bytes_per_pass(checkpoint: Checkpoint, kernels: Kernels) -> int:
    """Bytes of all matrices that a pass reads, as this implementation keeps them.

    An implementation stores rows of one format and width alike, so a few of each kind tell.
    """
    per_row: dict[tuple[str, int], float] = {}
    total = 0.0
    for name, shape in tensor_shapes(checkpoint.config).items():
        if len(shape) != 2 or (name == EMBEDDING and not checkpoint.config.tied):
            continue
        weight = checkpoint.tensor(name, shape)
        kind = (weight.format, shape[1])
        if kind not in per_row:
            per_row[kind] = _row_bytes(weight, kernels)
        total += shape[0] * per_row[kind]
    return round(total)


def _row_bytes(weight: RawWeight, kernels: Kernels) -> float:
    rows = min(SAMPLE_ROWS, weight.shape[0])
    return kernels.prepare([weight.rows(index_range(0, rows))]).nbytes / rows
