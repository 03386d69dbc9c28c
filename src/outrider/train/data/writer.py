"""The writer of conversations: every row of a batch is a small state machine on the device.

While a script is unfinished its tokens are forced (the chat template, an opener, a given prompt);
otherwise the model writes, as the user or as the assistant. The end token of one role starts the
script that leads to the other.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from outrider.kernels.tensors import token_ids
from outrider.train.config import GenerateConfig
from outrider.train.data.chat_frame import Frame
from outrider.train.data.conversations import Conversations
from outrider.train.data.decoder import LockstepDecoder
from outrider.train.data.loops import ever_looping, looping_now
from outrider.train.data.scripts import scripts_of
from outrider.train.graphed_step import GraphedStep
from outrider.train.networks.target import TorchTarget
from outrider.types.progress import Progress, silent

#: Steps between two looks for rows that repeat themselves.
LOOP_STEP: Final = 32
#: Logarithm of a probability share that excludes no token.
NO_FLOOR: Final = -1e4


def sample(logits: Tensor, temperature: Tensor, log_floor: Tensor) -> Tensor:
    """Draw tokens by Gumbel-max, int64 [B], from float32 logits [B, V].

    Args:
        logits: float32 [B, V].
        temperature: [B]; 0 is greedy.
        log_floor: [B]; tokens whose tempered probability is below exp(log_floor) times the
            likeliest one's are not drawn (min-p).
    """
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_min(1e-10)))
    floor = logits.amax(-1, keepdim=True) + (temperature * log_floor)[:, None]
    score = logits + temperature[:, None] * noise
    return torch.where(logits >= floor, score, -torch.inf).argmax(-1)


class ConversationWriter:
    """Writes batches of conversations in static buffers.

    Attributes:
        config: how to write.
        scripts: the forced tokens.
        tokens: int64 [B, T], the conversations.
        supervised: bool [B, T], which tokens the model chose in an answer.
    """

    def __init__(
        self, target: TorchTarget, frame: Frame, config: GenerateConfig, *, fast: bool
    ) -> None:
        """Allocate caches and state.

        Args:
            target: the model that writes.
            frame: token ids around the turns.
            config: how to write.
            fast: fuse the layers and capture the step into CUDA graphs.
        """
        self.config = config
        self.end = frame.end
        self.device = target.device
        self._decoder = LockstepDecoder(target, config.batch, config.length, fast)
        self.scripts = scripts_of(frame, config.length // 2, target.device)
        self._sample = torch.compile(sample, dynamic=False) if fast else sample
        self._step = GraphedStep(self._advance, fast)
        b, t = config.batch, config.length
        self.tokens = torch.zeros(b, t, dtype=torch.int64, device=self.device)
        self.supervised = torch.zeros(b, t, dtype=torch.bool, device=self.device)
        self._script, self._offset, self._written, self._turn, self._limit = (
            torch.zeros(b, dtype=torch.int64, device=self.device) for _ in range(5)
        )
        self._answering, self._done, self._cut, self._may_loop = (
            torch.zeros(b, dtype=torch.bool, device=self.device) for _ in range(4)
        )
        self._temperature = torch.zeros(b, dtype=torch.float32, device=self.device)
        self._next_script = torch.zeros(b, config.max_turns, dtype=torch.int64, device=self.device)
        self._user_floor = math.log(config.user_min_p) if config.user_min_p else NO_FLOOR

    def prepare(self, progress: Progress = silent) -> None:
        """Capture every graph, if there are to be any."""
        values = self._buckets()
        for index, keys in enumerate(values):
            self._decoder.position.zero_()
            self._step.prepare(keys)
            progress("Preparing generation", index + 1, len(values))

    def _buckets(self) -> list[int]:
        step, length = self.config.key_step, self.config.length
        if self.device.type == "cuda":
            return [length]
        return [min(keys, length) for keys in range(step, length + step, step)]

    def write(self, start: Tensor, category: Tensor) -> Conversations:
        """Write one batch.

        Args:
            start: int64 [B], the script that starts each row.
            category: uint8 [B], recorded with the rows.
        """
        greedy = self._reset(start)
        buckets = self._buckets()
        for position in range(self.config.length - 1):
            self._step(next(keys for keys in buckets if keys > position))
            if (position + 1) % LOOP_STEP == 0:
                self._cut_loops(position + 1)
        looping = ever_looping(self.tokens, self.supervised)
        rows = Conversations(self.tokens.int(), self.supervised.clone(), category, greedy, looping)
        return rows.select(self.supervised.sum(1) >= self.config.min_supervised)

    def _reset(self, start: Tensor) -> Tensor:
        """Put every row at the start of its script; returns which rows are greedy, bool [B]."""
        c, scripts, b = self.config, self.scripts, self.config.batch
        self._decoder.position.zero_()
        self.tokens.fill_(self.end)
        self.supervised.fill_(False)
        self.tokens[:, 0] = scripts.tokens[start, 0]
        self._script.copy_(start)
        self._offset.fill_(1)
        self._answering.copy_(scripts.answers[start])
        for state in (self._written, self._turn, self._done, self._cut):
            state.zero_()
        greedy = self._uniform(b) < c.greedy_share
        self._temperature.fill_(c.answer_temperature).masked_fill_(greedy, 0.0)
        self._may_loop.copy_(self._uniform(b) < c.keep_loops)
        short = self._uniform(b) < c.short_share
        self._limit.copy_(torch.where(short, c.short_tokens, c.length))
        follow = token_ids(scripts.follow_ups, self.device)
        drawn = torch.randint_like(self._next_script, len(follow))
        self._next_script.copy_(follow[drawn])
        return greedy

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, dtype=torch.float32, device=self.device)

    def _cut_loops(self, upto: int) -> None:
        """Mark rows whose answer repeats itself: their next token ends it, unsupervised."""
        found = looping_now(self.tokens, self.supervised, upto)
        self._cut.copy_(found & ~self._may_loop & self._answering & ~self._done)

    @torch.no_grad()
    def _advance(self, keys: int) -> None:
        """Feed the token at the position and choose the one after it, for every row."""
        position, scripts = self._decoder.position, self.scripts
        logits = self._decoder.step(self.tokens.index_select(1, position)[:, 0], keys)
        answering, forced = self._answering.clone(), self._offset < scripts.lengths[self._script]
        temperature = torch.where(answering, self._temperature, self.config.user_temperature)
        floor = torch.where(answering, NO_FLOOR, self._user_floor)
        drawn = self._sample(logits, temperature, floor)
        free = ~forced & ~self._done
        full = ~answering & (self._written + 1 >= self.config.user_tokens)
        cut = self._cut | (answering & (self._written >= self._limit))
        ended = free & ((drawn == self.end) | full | cut)
        at = self._offset.clamp(max=scripts.tokens.shape[1] - 1)
        written = torch.where(ended | self._done, self.end, drawn)
        token = torch.where(forced, scripts.tokens[self._script, at], written)
        supervised = free & answering & ~cut
        self.tokens.index_copy_(1, position + 1, token[:, None])
        self.supervised.index_copy_(1, position + 1, supervised[:, None])
        self._offset.add_(forced.long())
        self._written.add_(free.long())
        self._turn_over(ended, answering)
        self._cut.zero_()
        position.add_(1)

    def _turn_over(self, ended: Tensor, answering: Tensor) -> None:
        """Start the script to the other role in rows whose turn ended, or finish the row."""
        c, scripts = self.config, self.scripts
        asked, answered = ended & ~answering, ended & answering
        following = self._next_script.gather(1, self._turn[:, None])[:, 0]
        self._turn.add_(answered.long())
        room = c.length - self._decoder.position >= c.min_room
        last = answered & ((self._turn >= c.max_turns) | ~room)
        self._turn.clamp_(max=c.max_turns - 1)
        self._script.copy_(torch.where(answered & ~last, following, self._script))
        self._script.masked_fill_(asked, scripts.header)
        self._offset.masked_fill_(ended & ~last, 0)
        self._written.masked_fill_(ended, 0)
        # A whole user turn and the header after it are one script.
        speaking = torch.where(answered, scripts.answers[self._script], answering | asked)
        self._answering.copy_(speaking & ~last)
        self._done.logical_or_(last)
