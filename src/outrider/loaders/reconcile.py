"""Where config.json and the tensors of a folder disagree: what transformers would do, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch

from outrider.config.model import ModelConfig
from outrider.loaders.checkpoint import EMBEDDING, HEAD, tensor_shapes
from outrider.loaders.safetensors import TensorFolder
from outrider.types.errors import ModelError

#: End of the names of tensors that old exports hold and that are computed here.
COMPUTED: Final = "rotary_emb.inv_freq"
BASE: Final = "model."
#: Rows of two matrices that are compared at a time.
COMPARED_ROWS: Final = 4096


@dataclass(frozen=True)
class Reconciled:
    """A configuration that its tensors bear out.

    Attributes:
        config: the configuration, the head tied or not as the tensors say.
        stored: canonical to stored name of every tensor of the model.
        notes: what was reconciled, a phrase each.
    """

    config: ModelConfig
    stored: dict[str, str]
    notes: tuple[str, ...]


def reconcile(config: ModelConfig, tensors: TensorFolder) -> Reconciled:
    """Settle what a configuration and its tensors say about the same thing.

    A head of its own wins over ``tie_word_embeddings``, unless it equals the embedding; of a tied
    pair either may be missing. Tensors without a place are left out. Names may lack "model.", as
    in an export of the base model.

    Raises:
        ModelError: a tensor is missing or of another shape; one line that names it.
    """
    stored = _stored(tensors)
    config, notes = _settle_head(config, tensors, stored)
    shapes = tensor_shapes(config)
    extra = sorted(
        stored[name] for name in stored.keys() - shapes.keys() - {HEAD} if COMPUTED not in name
    )
    if extra:
        others = f" and {len(extra) - 1} more have" if len(extra) > 1 else " has"
        notes.append(
            f"{extra[0]}{others} no place in a {config.architecture} decoder of "
            f"{config.num_layers} layers and is left out"
        )
    used = {name: stored.get(name, name) for name in shapes}
    for name, shape in shapes.items():
        tensors.check(used[name], shape)
    return Reconciled(config, used, tuple(notes))


def _stored(tensors: TensorFolder) -> dict[str, str]:
    """Canonical to stored names."""
    names = tensors.names()
    bare = not any(name.startswith(BASE) for name in names)
    return {f"{BASE}{name}" if bare and name != HEAD else name: name for name in names}


def _settle_head(
    config: ModelConfig, tensors: TensorFolder, stored: dict[str, str]
) -> tuple[ModelConfig, list[str]]:
    """Whether the head is the embedding; ``stored`` learns which stands for which."""
    if not config.tied:
        if HEAD not in stored:
            raise ModelError(
                f"{tensors.source}: tensor {HEAD} is missing, though tie_word_embeddings is not "
                "true; set it in config.json if the embedding is the head"
            )
        return config, []
    if HEAD not in stored:
        return config, []
    if EMBEDDING not in stored:
        stored[EMBEDDING] = stored[HEAD]
        return config, [f"{EMBEDDING} is missing, and {HEAD}, which is tied to it, is both"]
    shape = (config.vocab_size, config.hidden_size)
    if _equal(tensors, stored[HEAD], stored[EMBEDDING], shape):
        return config, []
    return replace(config, tied=False), [
        f"tie_word_embeddings is true, but {HEAD} is not {EMBEDDING}; it is used as it is"
    ]


def _equal(tensors: TensorFolder, one: str, other: str, shape: tuple[int, int]) -> bool:
    """Whether two matrices hold the same values."""
    first, second = (tensors.tensor(name, shape).data for name in (one, other))
    return all(
        torch.equal(
            first[row : row + COMPARED_ROWS].float(), second[row : row + COMPARED_ROWS].float()
        )
        for row in range(0, shape[0], COMPARED_ROWS)
    )
