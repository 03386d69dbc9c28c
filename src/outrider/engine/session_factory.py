"""New sessions, with everything that their rounds need."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.caches.paged import PagedCache
from outrider.caches.pool import PagePool
from outrider.config.engine import Verification
from outrider.drafters.base import DraftSampling
from outrider.engine.request import Request, seed_of
from outrider.kernels.philox import STREAM_DRAFT, STREAM_TOKEN
from outrider.models.target import Target
from outrider.session.drafting import Drafting
from outrider.session.session import SpecSession
from outrider.session.stream import StreamLimits, TokenStream
from outrider.verify.samplers import Gumbel, make_sampler


class SessionFactory:
    """Makes the sessions of one engine. It does not hold the engine, whose pages are large."""

    def __init__(
        self,
        target: Target,
        pool: PagePool,
        drafting: Drafting,
        max_model_len: int,
        verification: Verification,
    ) -> None:
        """Bind what all sessions share.

        Args:
            target: the model.
            pool: pages of its cache.
            drafting: what they draft with.
            max_model_len: most tokens of a session, prompt and output.
            verification: how sampled requests are judged.
        """
        self._target = target
        self._pool = pool
        self._drafting = drafting
        self._limits = StreamLimits(target.eos_ids, max_model_len)
        self._verification: Verification = verification
        self._gumbel = _gumbel_of(target)

    def make(self, request_id: str, index: int, request: Request, arrived: float) -> SpecSession:
        """Return a session that has fed nothing yet.

        Args:
            request_id: names its request.
            index: which completion of it.
            request: the prompt and how to go on.
            arrived: when it was added, by the engine's clock.
        """
        params = request.params
        seed = seed_of(params, index)
        prompt = [int(token) for token in request.prompt_token_ids]
        stream = TokenStream(prompt, params, self._target.tokenizer, self._limits)
        sampler = make_sampler(params, seed, stream.end_ids, self._gumbel, self._verification)
        noise = STREAM_TOKEN if self._verification == "coupled" else STREAM_DRAFT
        drafter = self._drafting.begin(DraftSampling(params.temperature, seed, noise))
        cache = PagedCache(self._pool)
        return SpecSession(request_id, index, seed, stream, cache, sampler, drafter, arrived)


def _gumbel_of(target: Target) -> Gumbel:
    """The kernels' noise over numpy arrays."""
    kernels = target.model.kernels

    def gumbel(
        seed: int, stream: int, position: int, ids: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        drawn = kernels.gumbel(seed, stream, position, torch.from_numpy(ids))
        noise: NDArray[np.float32] = drawn.numpy()
        return noise

    return gumbel
