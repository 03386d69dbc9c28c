"""What the reader of decoder layers asks a checkpoint for, and what it makes of it."""

from __future__ import annotations

import pytest
import torch

from outrider.config.decoder import DecoderShape
from outrider.config.rotary import RotaryConfig
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.weights import RawWeight, raw_float
from outrider.models.layers import LayerFormat, LayerReader

H, F, HEADS, KV, D = 12, 20, 4, 2, 6
SHAPE = DecoderShape(H, F, HEADS, KV, D, 1e-5, 50, RotaryConfig(), 64)

MATRICES = {
    "self_attn.q_proj.weight": (HEADS * D, H),
    "self_attn.k_proj.weight": (KV * D, H),
    "self_attn.v_proj.weight": (KV * D, H),
    "self_attn.o_proj.weight": (H, HEADS * D),
    "mlp.gate_proj.weight": (F, H),
    "mlp.up_proj.weight": (F, H),
    "mlp.down_proj.weight": (H, F),
}
NORMS = {"input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,)}
HEAD_NORMS = {"self_attn.q_norm.weight": (D,), "self_attn.k_norm.weight": (D,)}
QKV_BIASES = {
    "self_attn.q_proj.bias": (HEADS * D,),
    "self_attn.k_proj.bias": (KV * D,),
    "self_attn.v_proj.bias": (KV * D,),
}
OUT_BIAS = {"self_attn.o_proj.bias": (H,)}


class Checkpoint:
    """Random tensors, which remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[int, ...]] = {}
        self.kept: dict[str, torch.Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        self.asked[name] = shape
        random = torch.Generator().manual_seed(len(self.asked))
        self.kept[name] = torch.randn(shape, generator=random)
        return raw_float(name, self.kept[name])


@pytest.mark.parametrize(
    ("form", "more"),
    [
        (LayerFormat(False, False, False), {}),
        (LayerFormat(True, False, False), QKV_BIASES),
        (LayerFormat(False, True, False), OUT_BIAS),
        (LayerFormat(False, False, True), HEAD_NORMS),
        (LayerFormat(True, True, True), {**QKV_BIASES, **OUT_BIAS, **HEAD_NORMS}),
    ],
    ids=["llama", "qwen2", "bias", "qwen3", "all"],
)
def test_only_what_a_format_has_is_read(form, more):
    checkpoint = Checkpoint()
    raw = LayerReader(SHAPE, form, checkpoint).read("layers.3.")
    expected = {**MATRICES, **NORMS, **more}
    assert checkpoint.asked == {f"layers.3.{name}": shape for name, shape in expected.items()}
    assert (raw.qkv_bias is not None, raw.out_bias is not None) == (form.qkv_bias, form.o_bias)
    assert (raw.q_norm is not None) == (raw.k_norm is not None) == form.qk_norm


def test_norms_stored_as_differences_become_whole():
    checkpoint = Checkpoint()
    form = LayerFormat(True, True, True, zero_centered=True)
    raw = LayerReader(SHAPE, form, checkpoint).read("")
    kept = checkpoint.kept
    assert torch.equal(raw.attn_norm, kept["input_layernorm.weight"] + 1)
    assert torch.equal(raw.k_norm, kept["self_attn.k_norm.weight"] + 1)
    assert torch.equal(raw.out_bias, kept["self_attn.o_proj.bias"])
    assert torch.equal(raw.qkv_bias, torch.cat([kept[name] for name in QKV_BIASES]))


def test_a_prepared_layer_multiplies_by_its_projections_in_order():
    checkpoint, kernels = Checkpoint(), ReferenceKernels()
    form = LayerFormat(True, True, False)
    layer = LayerReader(SHAPE, form, checkpoint).read("").prepare(kernels, 7, causal=False)
    kept, x = checkpoint.kept, torch.randn(3, H, generator=torch.Generator().manual_seed(1))
    for matrix, names in (
        (layer.qkv, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        (layer.gate_up, ["mlp.gate_proj", "mlp.up_proj"]),
    ):
        parts = [x @ kept[f"{n}.weight"].T + kept.get(f"{n}.bias", 0) for n in names]
        assert torch.allclose(kernels.linear(x, matrix), torch.cat(parts, -1), atol=1e-5)
    assert (layer.window, layer.causal) == (7, False)
