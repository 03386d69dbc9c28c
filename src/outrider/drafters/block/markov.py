"""Heads that decode a block from left to right: Markov bias and confidence (arXiv 2607.05147).

The backbone predicts all rows of a block at once and independently. A Markov head restores the
dependence of each token on the one before it by adding a low-rank bias to the logits:

    vanilla    W2 W1[x]
    gated      W2 (sigmoid(G [h; W1[x]]) * W1[x])
    rnn        (g, c, o) = J [s; W1[x]; h];  s <- sigmoid(g) s + (1 - sigmoid(g)) tanh(c);
               W2 tanh(o);  s = 0 at the start of a block

where x is the token before, h the row's final state, W1 [V, r] is indexed by target ids and
W2 [V', r] yields draft ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from outrider.config.drafter import DrafterConfig
from outrider.kernels.handles import Linear
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import zeros
from outrider.kernels.values import MarkovWeights
from outrider.models.layers import TensorSource


class MarkovHead(ABC):
    """Bias of a row's logits given the token before it.

    Attributes:
        rank: width r of the token embeddings.
    """

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare W1 and W2."""
        self.rank = config.markov_rank
        self._kernels = kernels
        self._tokens = kernels.prepare(
            [tensors("markov_head.markov_w1.weight", (config.vocab_size, self.rank))]
        )
        self._out = kernels.prepare(
            [tensors("markov_head.markov_w2.weight", (config.draft_vocab_size, self.rank))]
        )

    def embed(self, tokens: Tensor) -> Tensor:
        """``W1[x]`` of target ids int64 [n], float32 [n, r]."""
        return self._kernels.embed(self._tokens, tokens)

    def start(self, count: int) -> Tensor:
        """Recurrent state before the first row of ``count`` blocks, float32 [count, r]."""
        return zeros(count, self.rank, device=self._kernels.device)

    @abstractmethod
    def step(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Advance one row of n blocks.

        Args:
            hidden: final states of the rows, float32 [n, H].
            embedded: ``embed`` of the tokens before them, float32 [n, r].
            state: recurrent state, float32 [n, r].

        Returns:
            The bias over the draft vocabulary, float32 [n, V'], and the next state.
        """


class VanillaMarkov(MarkovHead):
    """The bias depends on the token before alone."""

    def weights(self, ids: Tensor | None) -> MarkovWeights:
        """The bias, for the fused operator; ``ids`` are the target ids of draft ids, or None."""
        return MarkovWeights(self._tokens, self._out, ids)

    def step(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """``W2 W1[x]``."""
        return self._kernels.linear(embedded, self._out), state


class GatedMarkov(MarkovHead):
    """The row's state gates the token's embedding."""

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare W1, W2 and the gate [r, H + r]."""
        super().__init__(config, kernels, tensors)
        width = config.hidden_size + self.rank
        self._gate = _biased(kernels, tensors, "markov_head.gate_proj", (self.rank, width))

    def step(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """``W2 (sigmoid(G [h; W1[x]]) * W1[x])``."""
        joint = torch.cat([hidden, embedded], dim=-1)
        gate = self._kernels.linear(joint, self._gate).sigmoid()
        return self._kernels.linear(gate * embedded, self._out), state


class RnnMarkov(MarkovHead):
    """A gated recurrent state carries the whole drafted prefix."""

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Prepare W1, W2 and the joint projection [3 r, 2 r + H]."""
        super().__init__(config, kernels, tensors)
        shape = (3 * self.rank, 2 * self.rank + config.hidden_size)
        self._joint = _biased(kernels, tensors, "markov_head.joint_proj", shape)

    def step(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """``W2 tanh(o)``, after the state took in the token and the row."""
        joint = self._kernels.linear(torch.cat([state, embedded, hidden], dim=-1), self._joint)
        gate, candidate, out = joint.chunk(3, dim=-1)
        gate = gate.sigmoid()
        state = gate * state + (1.0 - gate) * candidate.tanh()
        return self._kernels.linear(out.tanh().contiguous(), self._out), state


class ConfidenceHead:
    """Estimated acceptance of a row's token, given that those before it were accepted.

    ``sigmoid(w [h_k ; W1[x_(k-1)]] + b)``: it reads the token before the row's own, so cutting a
    draft by it depends on nothing that is yet to be judged.
    """

    def __init__(self, config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> None:
        """Read the projection [1, H] or [1, H + r]."""
        self._with_markov = config.confidence_with_markov
        width = config.hidden_size + (config.markov_rank if self._with_markov else 0)
        weight = tensors("confidence_head.proj.weight", (1, width)).float()
        self._weight = weight[0].to(kernels.device)
        self._bias = tensors("confidence_head.proj.bias", (1,)).float().to(kernels.device)

    def weights(self, rank: int) -> Tensor:
        """The projection over [h ; W1[x]] and its bias as one vector, float32 [H + r + 1]."""
        unread = zeros(0 if self._with_markov else rank, device=self._weight.device)
        return torch.cat([self._weight, unread, self._bias])

    def estimate(self, hidden: Tensor, embedded: Tensor | None) -> list[float]:
        """Confidences of n rows: hidden [n, H], embedded [n, r] of the tokens before them."""
        if self._with_markov:
            if embedded is None:
                raise ValueError("this confidence head reads Markov embeddings")
            hidden = torch.cat([hidden, embedded], dim=-1)
        # A single output is not worth a call into a kernel made for matrices.
        values: list[float] = ((hidden * self._weight).sum(-1) + self._bias).sigmoid().tolist()
        return values


def load_markov(config: DrafterConfig, kernels: Kernels, tensors: TensorSource) -> MarkovHead:
    """Prepare the Markov head of ``config.markov_kind``."""
    match config.markov_kind:
        case "vanilla":
            return VanillaMarkov(config, kernels, tensors)
        case "gated":
            return GatedMarkov(config, kernels, tensors)
        case "rnn":
            return RnnMarkov(config, kernels, tensors)


def _biased(kernels: Kernels, tensors: TensorSource, name: str, shape: tuple[int, int]) -> Linear:
    """A projection with its bias; the source yields zeros for a bias that was left out."""
    bias = tensors(name + ".bias", shape[:1]).float()
    return kernels.prepare([tensors(name + ".weight", shape)], bias)
