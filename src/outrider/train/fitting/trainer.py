"""The training loop: batches, the captured step, resumable state, the log."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from outrider.train.config import OptimConfig
from outrider.train.data.conversations import Conversations
from outrider.train.files import replacing
from outrider.train.fitting.batches import Batch, draw_anchors
from outrider.train.fitting.distributed import ALONE, Peers
from outrider.train.fitting.evaluation import Evaluation
from outrider.train.fitting.history import History, LogEntry
from outrider.train.fitting.objective import Objective
from outrider.train.fitting.optimiser import Optimisers
from outrider.train.graphed_step import GraphedStep
from outrider.train.networks.heads import TrimmedHead
from outrider.train.networks.network import Network
from outrider.train.networks.target import TorchTarget
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent

#: Name of the file that a run goes on from.
STATE: Final = "state.pt"
#: Steps between waits for the GPU, so that the clock is true.
SYNC_STEPS: Final = 10
#: Distance between the seeds of two processes.
SEED_STRIDE: Final = 1_000_003
#: What reading a damaged or foreign state raises, by where the damage is.
DAMAGE: Final = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    pickle.UnpicklingError,
)


class Evaluator(Protocol):
    """Measures acceptance with the network's weights as they are."""

    def __call__(self, network: nn.Module) -> Evaluation:
        """Acceptance on held-out rows."""


class Trainer:
    """Trains a network on conversations that stay on the target's device.

    Attributes:
        history: progress so far, resumed runs included.
    """

    def __init__(
        self,
        network: Network,
        target: TorchTarget,
        head: TrimmedHead,
        rows: Conversations,
        config: OptimConfig,
        folder: Path,
        peers: Peers = ALONE,
    ) -> None:
        """Set up a run, or go on with the one whose state is in ``folder``."""
        self._network = network
        self._peers = peers
        self._config = config
        self._rows = rows
        self._device = target.device
        self._state_path = folder / STATE
        self._log_path = folder / "log.jsonl"
        self._optimisers = Optimisers(network, config, self._device)
        self._objective = Objective(network, target, head, config)
        self._batch = self._static_batch()
        capture = config.graphs and self._device.type == "cuda"
        self._step = GraphedStep(self._optimise, capture)
        self.history = History()
        if self._state_path.exists():
            self._restore()

    def _static_batch(self) -> Batch:
        b, s = min(self._config.rows, len(self._rows)), self._rows.ids.shape[1]
        anchors = min(self._config.anchors, s - 1)
        return Batch(
            torch.zeros(b, s, dtype=torch.int64, device=self._device),
            torch.zeros(b, s, dtype=torch.bool, device=self._device),
            torch.zeros(b, anchors, dtype=torch.int64, device=self._device),
        )

    def _optimise(self, mixed: int) -> None:
        """One step on the static batch."""
        self._optimisers.zero_grad()
        self._objective(self._batch, bool(mixed)).backward()  # type: ignore[no-untyped-call]
        trained = self._optimisers.parameters
        self._peers.average([p.grad for p in trained if p.grad is not None])
        self._optimisers.step()

    def _load(self, index: Tensor) -> None:
        """Fill the static batch with the rows of an index."""
        self._batch.ids.copy_(self._rows.ids[index])
        self._batch.supervised.copy_(self._rows.supervised[index])
        anchors = draw_anchors(self._batch.supervised, self._batch.anchors.shape[1])
        self._batch.anchors.copy_(anchors)

    def _indices(self) -> Iterator[Tensor]:
        """Own rows of every batch from now on; each epoch is a new order."""
        b, peers = len(self._batch.ids), self._peers
        per_epoch = max(len(self._rows) // (b * peers.count), 1)
        epoch, at = divmod(self.history.step, per_epoch)
        while True:
            generator = torch.Generator().manual_seed(self._config.seed * 100_003 + epoch)
            count = len(self._rows)
            order = torch.randperm(count, generator=generator, dtype=torch.int64).to(self._device)
            for index in range(at, per_epoch):
                first = (index * peers.count + peers.rank) * b
                yield order[first : first + b]
            epoch, at = epoch + 1, 0

    @property
    def share(self) -> float:
        """Share of the schedule that has passed, by steps or by time, whichever is further."""
        c, h = self._config, self.history
        by_steps = h.step / c.steps if c.steps else 0.0
        by_time = h.seconds / c.seconds if c.seconds else 0.0
        return min(max(by_steps, by_time), 1.0)

    def run(
        self,
        evaluator: Evaluator | None = None,
        progress: Progress = silent,
        stop_after: float = 0.0,
    ) -> bool:
        """Train until the schedule ends, or for ``stop_after`` seconds if that is not 0.

        Compilation and capture come first and do not count towards the schedule.

        Returns:
            Whether the schedule has ended.
        """
        torch.manual_seed(self._config.seed + self.history.step + SEED_STRIDE * self._peers.rank)
        limit = time.monotonic() + stop_after
        self._prepare(progress)
        clock = _Clock(self.history.seconds)
        saved = evaluated = clock.seconds()
        for index in self._indices():
            if self.share >= 1.0:
                break
            self._one(index)
            if self.history.step % SYNC_STEPS == 0 or self._device.type == "cpu":
                now = self._agree(clock)
                if now - evaluated > self._config.eval_seconds and evaluator is not None:
                    self._record(evaluator)
                    evaluated = clock.seconds()
                if now - saved > self._config.save_seconds:
                    self.save()
                    saved = clock.seconds()
                progress("Training", round(1000 * self.share), 1000)
                late = float(stop_after > 0 and time.monotonic() > limit)
                if self._peers.agree(late, self._device):
                    break
        self._agree(clock)
        self._record(evaluator)
        self.save()
        return self.share >= 1.0

    def _agree(self, clock: _Clock) -> float:
        """Wait for the GPU, and take over the first process's time of training."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self.history.seconds = self._peers.agree(clock.seconds(), self._device)
        return self.history.seconds

    def _prepare(self, progress: Progress) -> None:
        """Capture the steps of the phases to come, at a rate that hardly changes the weights."""
        self._load(next(self._indices()))
        self._optimisers.set_rate(0.0)
        phases = [phase for phase in (0, 1) if phase >= self._phase]
        for index, phase in enumerate(phases):
            self._step.prepare(phase)
            progress("Preparing training", index + 1, len(phases))

    @property
    def _phase(self) -> int:
        """0 while cross-entropy alone is trained, then 1."""
        return int(self.share >= self._config.ce_share)

    def _one(self, index: Tensor) -> None:
        """Train on one batch."""
        self._load(index)
        self._optimisers.set_rate(self.share)
        self._step(self._phase)
        self.history.step += 1
        if self.history.step % self._config.log_every == 0:
            self._record(None)

    def _record(self, evaluator: Evaluator | None) -> None:
        """Append an entry to the log, with an evaluation if there is an evaluator."""
        h = self.history
        ce, tv, _ = self._objective.parts.tolist()
        tv = tv if self._phase else 0.0
        found = None if evaluator is None else evaluator(self._network).overall
        entry = LogEntry(
            h.step,
            round(h.seconds, 2),
            ce,
            tv,
            None if found is None else found.tau,
            () if found is None else found.positions,
        )
        h.log.append(entry)
        if not self._peers.leads:
            return
        with self._log_path.open("a") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def save(self) -> None:
        """Write the resumable state atomically; one process does it for all."""
        if not self._peers.leads:
            return
        state = {
            "network": self._network.state_dict(),
            "optimisers": self._optimisers.state(),
            "history": asdict(self.history),
        }
        with replacing(self._state_path) as partial:
            torch.save(state, partial)

    def _restore(self) -> None:
        """Go on from the saved state; DrafterError if it is damaged or not this network's."""
        try:
            self._take_over()
        except torch.OutOfMemoryError:
            raise
        except DAMAGE as error:
            raise DrafterError(
                f"{self._state_path}: cannot be read as this run's state "
                f"({type(error).__name__}); delete it to train anew on the same data"
            ) from None

    def _take_over(self) -> None:
        state = torch.load(self._state_path, map_location=self._device, weights_only=True)
        self._network.load_state_dict(state["network"])
        self._optimisers.load(state["optimisers"])
        past = state["history"]
        log = [LogEntry(**{**e, "positions": tuple(e["positions"])}) for e in past["log"]]
        self.history = History(past["step"], past["seconds"], log)


class _Clock:
    """Seconds of this run added to those of earlier ones."""

    def __init__(self, earlier: float) -> None:
        self._earlier = earlier
        self._began = time.monotonic()

    def seconds(self) -> float:
        return self._earlier + time.monotonic() - self._began
