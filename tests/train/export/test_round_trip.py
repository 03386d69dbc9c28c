"""A checkpoint that the trainer wrote drafts in the engine what the trainer's simulation drafts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from tiny_training import CONFIG, SHAPE, H, V, source, torch_target

from outrider.drafters.base import CommittedRows, DraftRequest, DraftSampling
from outrider.drafters.loading import load_drafter
from outrider.kernels.reference import ReferenceKernels
from outrider.models.dense import DenseModel
from outrider.train.export.checkpoint import export_checkpoint, stored_weights
from outrider.train.networks.heads import trimmed_head
from outrider.train.networks.network import new_network

LENGTH = 40
CASES = {
    "dspark": SHAPE,
    "dspark gated": replace(SHAPE, markov_kind="gated"),
    "dspark trimmed": replace(SHAPE, draft_vocab=48, confidence=False),
    "dflash": SHAPE,
    "mtp": replace(SHAPE, block=3),
    "mtp trimmed": replace(SHAPE, block=2, draft_vocab=40),
}


def random_network(kind, shape):
    torch.manual_seed(3)
    network = new_network(kind, CONFIG, shape)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            scale = 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.add_(torch.randn_like(parameter) * scale * (2.0 if "fc" in name else 1.0))
    return network


def engine_drafts(folder, ids, anchors, network):
    """Drafts of ``outrider.drafters`` with each anchor as the tip."""
    dense = DenseModel(CONFIG, ReferenceKernels(), source(), 256)
    drafter = load_drafter(folder, dense, draft_pages=64)
    states = torch_target().states(ids[None], drafter.taps)
    out = []
    for anchor in anchors:
        state = drafter.begin(DraftSampling())
        rows = CommittedRows(ids[:anchor].tolist(), 0, states.taps[0, :anchor].contiguous())
        drafter.observe([state], [rows])
        (proposal,) = drafter.propose(
            [DraftRequest(state, int(ids[anchor]), drafter.max_draft, drafter.max_draft)]
        )
        out.append(proposal.tokens)
        state.release()
    return out


@pytest.mark.parametrize("storage", ["q8_0", "q4_1", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_engine_drafts_as_simulated(case, storage, tmp_path):
    kind, shape = case.split()[0], CASES[case]
    network = random_network(kind, shape)
    target = torch_target()
    d2t = torch.randperm(V)[: shape.draft_vocab].sort().values
    head = trimmed_head(target, d2t)
    export_checkpoint(network, d2t, tmp_path, storage)
    network.load_state_dict(stored_weights(tmp_path, network))
    ids = torch.randint(1, V, (LENGTH,))
    anchors = [2, 5, 17, 33]
    with torch.no_grad():
        states = target.states(ids[None], network.taps)
        simulated = network.simulate(states, ids[None], torch.tensor([anchors]), head)[0]
    drafts = engine_drafts(tmp_path, ids, anchors, network)
    assert drafts == simulated.tolist()
    assert len({tuple(row) for row in drafts}) > 1


@pytest.mark.parametrize(("storage", "bound"), [("q8_0", 0.01), ("q4_1", 0.1)])
def test_quantised_weights_read_back_close(storage, bound, tmp_path):
    network = random_network("dspark", SHAPE)
    export_checkpoint(network, torch.arange(V), tmp_path, storage)
    stored = stored_weights(tmp_path, network)
    for name, weight in network.state_dict().items():
        assert stored[name].shape == weight.shape
        error = float((stored[name] - weight).norm() / weight.norm().clamp_min(1e-6))
        assert error < (0.01 if "markov" in name else bound), name
    assert H % 32 == 0


@pytest.mark.parametrize(("kind", "four", "eight"), [("dspark", 15, 3), ("mtp", 8, 0)])
def test_q4_1_is_for_products(kind, four, eight, tmp_path):
    """Blocks of layers and fc have 20 bytes, of Markov tables 34; what is small stays float."""
    network = random_network(kind, replace(SHAPE, markov_kind="gated"))
    export_checkpoint(network, torch.arange(V), tmp_path, "q4_1")
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields["outrider_quantization"] == {"format": "Q4_1"}
    tensors = load_file(tmp_path / "model.safetensors")
    sizes = {20: set(), 34: set()}
    for name, weight in network.state_dict().items():
        data = tensors["mtp." + name if kind == "mtp" else name]
        if data.dtype == torch.uint8:
            sizes[data.shape[1] * 32 // weight.shape[1]].add(name)
        else:
            assert weight.ndim == 1 or name == "confidence_head.proj.weight"
            assert torch.equal(data, weight)
    assert {name.split(".")[0] for name in sizes[20]} == {"fc", "layers"}
    assert all(name.startswith("markov_head") for name in sizes[34])
    assert (len(sizes[20]), len(sizes[34])) == (four, eight)
