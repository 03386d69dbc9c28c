"""From a model's name to a running target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.config.model import ModelConfig
from outrider.kernels.isolation import isolated
from outrider.kernels.table import Kernels
from outrider.loaders.open import open_model
from outrider.models.dense import DenseModel
from outrider.text.tokenizer import Tokenizer
from outrider.types.errors import RequestError
from outrider.types.progress import Progress, silent


@dataclass(frozen=True)
class Target:
    """A loaded model and what surrounds it.

    Attributes:
        source: where it came from, for messages.
        signature: tells which model it is, whatever its file is called.
        model: the weights, prepared.
        tokenizer: text to tokens and back.
        max_model_len: most tokens of a session that the model was made for.
    """

    source: str
    signature: str
    model: DenseModel
    tokenizer: Tokenizer
    max_model_len: int

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer: the model's and its tokenizer's."""
        return frozenset(self.config.eos_ids) | frozenset(self.tokenizer.eos_ids)

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        return self.model.config

    def reaching(self, length: int) -> Target:
        """Return this target for sessions of up to ``length`` tokens, over the same weights."""
        return replace(self, model=self.model.reaching(length))


@isolated()
def load_target(
    spec: str, kernels: Kernels, max_model_len: int | None = None, progress: Progress = silent
) -> Target:
    """Load a model.

    Its rotary table is empty: whoever makes an engine of it says how long its sessions can be
    (``Target.reaching``), for which a model's own limit is often too much.

    Args:
        spec: "smollm2", a folder, a .gguf file, or a hub id.
        kernels: the operator table that will run it.
        max_model_len: most tokens that sessions will have, refused at once if the model cannot;
            None asks for nothing.
        progress: told while weights are prepared.

    Raises:
        ModelError: it cannot be loaded.
        RequestError: the asked-for length exceeds the model's.
    """
    with open_model(spec, progress) as checkpoint:
        limit = checkpoint.config.max_position
        if max_model_len is not None and max_model_len > limit:
            raise RequestError(
                "max_model_len", f"must be at most {limit}, the model's own, not {max_model_len}"
            )
        model = DenseModel(checkpoint.config, kernels, checkpoint.tensor, 0, progress)
        tokenizer = checkpoint.tokenizer()
        return Target(checkpoint.source, checkpoint.signature, model, tokenizer, limit)
