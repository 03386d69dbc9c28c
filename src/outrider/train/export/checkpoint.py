"""Finished drafters as checkpoints: config.json and model.safetensors.

Block drafters follow DeepSpec's layout (``Qwen3DSparkModel``) or z-lab's (``DFlashDraftModel``),
MTP heads Qwen's tensor names. Keys of our own: ``draft_vocab_size`` with ``d2t`` as in speculators
(draft token i means target token i + d2t[i]), the tensor ``mask_embedding``, and
``outrider_quantization``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from outrider.config.drafter import DrafterConfig, MtpConfig
from outrider.config.rotary import RotaryConfig
from outrider.drafters.loading import DrafterTensors
from outrider.loaders.safetensors import TensorFolder
from outrider.train.config import Storage
from outrider.train.export.quantise import BLOCK, quantize_q4_1, quantize_q8_0
from outrider.train.files import save_atomically
from outrider.train.networks.mtp import MtpHead
from outrider.train.networks.network import Network

#: Tensors of a network by name.
Weights = dict[str, Tensor]
#: Names of the products of layers, and of those around them: all rows are read in every draft.
PRODUCTS: Final = ("_proj.weight", "fc.weight", "lm_head.weight")
#: A head that looks rows up and is small: 4 bits would save nothing there.
TABLES: Final = "markov_head."


def export_checkpoint(network: Network, d2t: Tensor, folder: Path, storage: Storage) -> None:
    """Write a network's weights and configuration.

    Args:
        network: the trained network.
        d2t: target token of every draft token, int64 [D].
        folder: where to write.
        storage: form of the matrices; vectors stay float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prefix = "mtp." if isinstance(network, MtpHead) else ""
    tensors = {
        prefix + name: stored(name, value.detach().float().cpu(), storage)
        for name, value in network.state_dict().items()
    }
    ids = d2t.cpu()
    tensors["d2t"] = ids - torch.arange(len(ids), dtype=torch.int64, device=ids.device)
    if isinstance(network, MtpHead):
        fields = _mtp_fields(network.config)
    else:
        fields = _block_fields(network.config)
    fields |= storage_fields(storage)
    save_atomically(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")


def storage_fields(storage: Storage) -> dict[str, object]:
    """The fields of config.json that tell how matrices are stored."""
    if storage == "bf16":
        return {"dtype": "bfloat16"}
    return {"outrider_quantization": {"format": storage.upper()}, "dtype": "float32"}


def stored_weights(folder: Path, network: Network) -> Weights:
    """Read a checkpoint's weights back, as float32, under the names of ``network``."""
    prefix = "mtp." if isinstance(network, MtpHead) else ""
    tensors = DrafterTensors(TensorFolder(folder), quantized=True)
    weights: Weights = {}
    for name, parameter in network.state_dict().items():
        data = tensors(prefix + name, tuple(parameter.shape)).float()
        weights[name] = data.to(parameter.device)
    return weights


def stored(name: str, weight: Tensor, storage: Storage) -> Tensor:
    """A tensor as it is stored.

    Vectors and the confidence head are small and stay float32, as do rows that do not fill blocks.
    In Q4_1 checkpoints only the big products are Q4_1, tables are Q8_0.

    Args:
        name: its name in a checkpoint.
        weight: float32 of any shape.
        storage: form of the matrices.

    Returns:
        ``weight`` itself, bfloat16 of its shape, or blocks, uint8 [rows, bytes].
    """
    if weight.ndim < 2 or len(weight) == 1:
        return weight
    if storage == "bf16":
        return weight.bfloat16()
    if weight.ndim > 2 or weight.shape[1] % BLOCK:
        return weight
    if storage == "q4_1" and name.endswith(PRODUCTS) and TABLES not in name:
        return quantize_q4_1(weight)
    return quantize_q8_0(weight)


def _rope_fields(rotary: RotaryConfig) -> dict[str, object]:
    """Rotary parameters in Hugging Face's older spelling."""
    if rotary.kind == "default":
        return {"rope_theta": rotary.theta, "rope_scaling": None}
    scaling: dict[str, object] = {"rope_type": rotary.kind, "factor": rotary.factor}
    if rotary.kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = rotary.original_max_position
    if rotary.kind == "llama3":
        scaling["low_freq_factor"] = rotary.low_freq_factor
        scaling["high_freq_factor"] = rotary.high_freq_factor
    if rotary.kind == "yarn":
        scaling["beta_fast"], scaling["beta_slow"] = rotary.beta_fast, rotary.beta_slow
        scaling["attention_factor"] = rotary.attention_factor
        scaling["mscale"], scaling["mscale_all_dim"] = rotary.mscale, rotary.mscale_all_dim
        scaling["truncate"] = rotary.truncate
    return {"rope_theta": rotary.theta, "rope_scaling": scaling}


def _sizes(c: DrafterConfig | MtpConfig) -> dict[str, object]:
    return {
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": c.rms_eps,
        "vocab_size": c.vocab_size,
        "draft_vocab_size": c.draft_vocab_size,
        "max_position_embeddings": c.max_position,
        "attention_bias": False,
        "num_target_layers": c.num_target_layers,
        **_rope_fields(c.rotary),
    }


def _block_fields(c: DrafterConfig) -> dict[str, object]:
    """DeepSpec's keys for shifted rows, z-lab's for others."""
    fields: dict[str, object] = {
        "architectures": ["Qwen3DSparkModel" if c.row_shift else "DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": c.num_layers,
        "layer_types": ["full_attention"] * c.num_layers,
        "use_sliding_window": False,
        "block_size": c.block_size,
        **_sizes(c),
    }
    if not c.row_shift:
        options = {"mask_token_id": c.mask_token_id, "target_layer_ids": list(c.taps)}
        return {**fields, "dflash_config": options}
    return {
        **fields,
        "mask_token_id": c.mask_token_id,
        "target_layer_ids": list(c.taps),
        "markov_rank": c.markov_rank,
        "markov_head_type": c.markov_kind,
        "enable_confidence_head": c.confidence,
        "confidence_head_with_markov": c.confidence_with_markov,
    }


def _mtp_fields(c: MtpConfig) -> dict[str, object]:
    return {
        "architectures": ["MTPDraftModel"],
        "mtp_num_hidden_layers": 1,
        "draft_depth": c.depth,
        "target_state": c.target_state,
        "qk_norm": c.qk_norm,
        "zero_centered_norms": c.zero_centered,
        **_sizes(c),
    }
