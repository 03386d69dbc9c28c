"""What the native kernels prepare of several weights: addresses, gathered and checked once.

Native objects hold bare addresses. Each handle keeps what its addresses point at: the values it was
prepared from, and tensors converted for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outrider.kernels import _native
from outrider.kernels.composed import ComposedStack
from outrider.kernels.cpu.arguments import (
    check_context,
    check_draft_weights,
    check_markov,
    check_stack,
    floats,
    indices,
    need,
)
from outrider.kernels.cpu.packed import packed
from outrider.kernels.drafting import ComposedBlockDrafter, ComposedContext, ComposedMarkovBias
from outrider.kernels.handles import own
from outrider.kernels.tensors import CPU
from outrider.kernels.values import (
    BlockDraftWeights,
    ContextWeights,
    LayerWeights,
    MarkovWeights,
    StackWeights,
)

#: One layer as C++ takes it; addresses are 0 for what there is none of.
LayerArgs = tuple[
    int,
    _native.Matrix,
    int,
    int,
    _native.Matrix,
    int,
    _native.Matrix,
    _native.Matrix,
    int,
    bool,
]


class CpuStack(ComposedStack):
    """Decoder layers."""

    def __init__(self, weights: StackWeights) -> None:
        """Check the shapes and gather the addresses.

        Raises:
            TypeError: a weight is another implementation's.
            ValueError: a weight has another shape than the stack's.
        """
        check_stack(weights)
        super().__init__(weights)
        self._kept: list[Tensor] = []
        cos, sin = weights.rotary.cos, weights.rotary.sin
        self.native = _native.Stack(
            [self._layer(layer) for layer in weights.layers],
            weights.num_heads,
            weights.num_kv_heads,
            weights.head_dim,
            self.hidden_size,
            weights.eps,
            self._address(cos, *cos.shape),
            self._address(sin, *sin.shape),
        )

    def _layer(self, layer: LayerWeights) -> LayerArgs:
        return (
            self._address(layer.attn_norm, self.hidden_size),
            packed(layer.qkv),
            self._address(layer.q_norm, self.head_dim),
            self._address(layer.k_norm, self.head_dim),
            packed(layer.out),
            self._address(layer.mlp_norm, self.hidden_size),
            packed(layer.gate_up),
            packed(layer.down),
            layer.window or 0,
            layer.causal,
        )

    def _address(self, tensor: Tensor | None, *shape: int) -> int:
        """Address of a float32 tensor of a shape, which the stack keeps alive; 0 for None."""
        if tensor is None:
            return 0
        self._kept.append(floats(tensor, *shape))
        return self._kept[-1].data_ptr()


class CpuContext(ComposedContext):
    """A drafter's projections from tapped states to context rows.

    Attributes:
        stack: the layers that read the rows.
        norm: the norm between the projections, as C++ reads it.
    """

    def __init__(self, weights: ContextWeights) -> None:
        """Check the shapes.

        Raises:
            TypeError: a weight is another implementation's.
            ValueError: a weight has another shape than the stack's.
        """
        super().__init__(weights)
        check_context(weights)
        self.stack = own(weights.stack, CpuStack)
        self.fc, self.keys_values = packed(weights.fc), packed(weights.keys_values)
        self.norm = floats(weights.norm, weights.fc.out_features)


class CpuMarkovBias(ComposedMarkovBias):
    """A bias by the token before."""

    def __init__(self, weights: MarkovWeights) -> None:
        """Check the shapes and pad the target ids.

        Raises:
            TypeError: a weight is another implementation's.
            ValueError: its two matrices do not fit each other.
            IndexError: a target id is outside the embedding.
        """
        check_markov(weights)
        super().__init__(weights)
        self.tokens, self.out = packed(weights.tokens), packed(weights.out)
        self._ids = _padded_ids(weights)

    @property
    def ids(self) -> int:
        """Address of the target ids; 0 if they are the draft ids."""
        return 0 if self._ids is None else self._ids.data_ptr()


class CpuBlockDrafter(ComposedBlockDrafter):
    """A drafter of whole blocks."""

    def __init__(self, weights: BlockDraftWeights) -> None:
        """Check the shapes and gather the addresses.

        Raises:
            TypeError: a weight is another implementation's.
            ValueError: a weight has another shape than the drafter's.
            IndexError: a target id is outside the embedding.
        """
        check_draft_weights(weights)
        markov = CpuMarkovBias(weights.markov)
        super().__init__(weights, markov)
        hidden, rank = weights.stack.hidden_size, weights.markov.tokens.in_features
        self._masks = floats(weights.masks, len(weights.masks), hidden)
        self._norm = floats(weights.norm, hidden)
        sure = weights.confidence
        self._confidence = None if sure is None else floats(sure, hidden + rank + 1)
        self.native = _native.BlockDraftWeights(
            own(weights.stack, CpuStack).native,
            packed(weights.embedding),
            weights.scale,
            self._masks.data_ptr(),
            len(self._masks),
            weights.first,
            self._norm.data_ptr(),
            packed(weights.head),
            markov.tokens,
            markov.out,
            markov.ids,
            0 if self._confidence is None else self._confidence.data_ptr(),
        )


def _padded_ids(weights: MarkovWeights) -> Tensor | None:
    """Target ids as int32, in whole tiles of 16; None if they are the draft ids."""
    if weights.ids is None:
        return None
    ids = indices(weights.ids, weights.tokens.out_features, "target ids")
    need(len(ids) == weights.out.out_features, "every draft id needs a target id")
    padded = torch.zeros(-(-len(ids) // 16) * 16, dtype=torch.int32, device=CPU)
    padded[: len(ids)] = ids
    return padded
