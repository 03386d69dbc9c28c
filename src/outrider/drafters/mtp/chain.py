"""One session's drafted tokens, each fed to find the next."""

from __future__ import annotations

from torch import Tensor

from outrider.caches.pool import OutOfPages
from outrider.drafters.base import DrafterFault, Proposal
from outrider.drafters.context.request import CheckedRequest
from outrider.drafters.head import DraftHead, draw_token, stack_distributions
from outrider.drafters.mtp.state import MtpState
from outrider.kernels.handles import PageStore
from outrider.kernels.rows import RowGroup
from outrider.kernels.tensors import new_floats


class DraftChain:
    """One session's chain of drafted tokens.

    Attributes:
        open: whether it goes on.
        token: the token to feed next.
        hidden: the state it is paired with, float32 [H].
        confidences: probability of the likeliest token at each step taken.
    """

    def __init__(self, request: CheckedRequest, state: MtpState) -> None:
        self._request = request
        self._state = state
        self._tokens: list[int] = []
        self._distributions: list[Tensor | None] = []
        self._fault: str | None = None
        self._group: RowGroup | None = None
        before = state.hidden.at(state.length - 1)
        self.open = before is not None
        self.token = request.tip
        self.hidden = new_floats(0) if before is None else before
        self.confidences: list[float] = []

    def stage(self, store: PageStore) -> None:
        """Stage a slot for every step; the rows are dropped after the chain."""
        if not self.open:
            return
        try:
            self._group = self._state.stage(self._request.length, store)
        except OutOfPages:
            self.fail("the draft cache is out of pages")

    def drop(self) -> None:
        """Forget the staged slots."""
        if self._group is not None:
            self._state.cache.commit(0)

    def row(self, step: int) -> RowGroup:
        """The slot of a step."""
        if self._group is None:
            raise RuntimeError("an open chain has staged its slots")
        return RowGroup(self._group.start + step, 1, self._group.pages, self._group.floor)

    def take(self, head: DraftHead, likeliest: int, logits: Tensor, hidden: Tensor) -> None:
        """Choose a token from logits [V'] and feed it next with ``hidden``."""
        sampling, token, distribution = self._state.sampling, likeliest, None
        if sampling.temperature > 0:
            position = self._state.length + 1 + len(self._tokens)
            token, distribution = draw_token(head, logits, sampling, position)
        self._tokens.append(token)
        self._distributions.append(distribution)
        self.token, self.hidden = token, hidden
        self.open = len(self._tokens) < self._request.length

    def fail(self, reason: str) -> None:
        """End the chain with a fault."""
        self._fault = reason
        self.open = False

    def answer(self) -> Proposal | DrafterFault:
        """What was drafted, or the fault."""
        if self._fault is not None:
            return DrafterFault(self._fault)
        return Proposal(self._tokens, stack_distributions(self._distributions), self.confidences)
