"""Decoding many conversations in lock-step: every row is at the same position.

All buffers are static, so that a step can be captured into a CUDA graph. Without a GPU, keys are
attended in buckets: the first so many positions, with a mask.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from outrider.train.networks.target import (
    Angles,
    TorchTarget,
    finish,
    logits32,
    project,
    rms_norm,
)


class LockstepDecoder:
    """Static key and value caches of B rows and T positions, and the step that fills them.

    Attributes:
        position: int64 [1], the position that the next step feeds.
    """

    def __init__(self, target: TorchTarget, rows: int, length: int, compiled: bool) -> None:
        """Allocate the caches."""
        c = target.config
        self.target = target
        self.position = torch.zeros(1, dtype=torch.int64, device=target.device)
        shape = (rows, c.num_kv_heads, length, c.head_dim)
        self._keys = [self._zeros(shape) for _ in range(c.num_layers)]
        self._values = [self._zeros(shape) for _ in range(c.num_layers)]
        self._angles = target.angles(length)
        self._at = torch.arange(length, dtype=torch.int64, device=target.device)
        # The parts around the cache are fused, not the whole layer: compiled code might copy the
        # cache in order to write to it.
        self._project = torch.compile(project, dynamic=False) if compiled else project
        self._finish = torch.compile(finish, dynamic=False) if compiled else finish

    def _zeros(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=self.target.dtype, device=self.target.device)

    @torch.no_grad()
    def step(self, ids: Tensor, keys: int) -> Tensor:
        """Feed one token of every row, int64 [B], at ``position``; float32 logits [B, V].

        ``keys`` bounds the positions attended and must exceed ``position``; a GPU needs no bound.
        """
        target = self.target
        x = F.embedding(ids, target.embedding)[:, None]
        angles = Angles(
            self._angles.cos.index_select(0, self.position),
            self._angles.sin.index_select(0, self.position),
        )
        for index, weights in enumerate(target.layers):
            q, k, v = self._project(x, weights, target.shape, angles)
            mixed = self._attend(index, q, (k, v), keys)
            x = self._finish(x, mixed, weights, target.shape.eps)
        final = rms_norm(x[:, 0], target.norm, target.config.rms_eps)
        return logits32(final, target.head)

    def _attend(self, layer: int, q: Tensor, new: tuple[Tensor, Tensor], keys: int) -> Tensor:
        """Write one key and value [B, g, 1, d] and attend q [B, h, 1, d]; [B, 1, h d].

        Query heads that share a key head become query rows of one head, so keys are read once.
        """
        rows, window = len(q), self.target.config.windows[layer]
        cached = (self._keys[layer], self._values[layer])
        for cache, value in zip(cached, new, strict=True):
            cache.index_copy_(2, self.position, value)
        shape = self.target.shape
        grouped = q.reshape(rows, shape.kv_heads, -1, shape.head_dim)
        if q.is_cuda:
            from outrider.train.data.cached_attention import attend_cached

            mixed = attend_cached(grouped, *cached, self.position, window)
        else:
            k, v = (cache[:, :, :keys] for cache in cached)
            mask = self._mask(keys, window)
            mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask)
        return mixed.reshape(rows, 1, -1)

    def _mask(self, keys: int, window: int | None) -> Tensor:
        """Which of the first ``keys`` positions the step sees, [1, 1, 1, keys]."""
        at = self._at[:keys]
        seen = at <= self.position
        if window is not None:
            seen = seen & (at > self.position - window)
        return seen[None, None, None]
