"""A whole training run: data, network, schedule, checkpoint, report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from outrider.loaders.open import open_model
from outrider.text.tokenizer import Tokenizer
from outrider.train.compose import Composer, plain_words
from outrider.train.config import GenerateConfig, TrainConfig
from outrider.train.conversations import Conversations, concatenate, load_conversations
from outrider.train.evaluate import Evaluation, evaluate
from outrider.train.export import Weights, export_checkpoint, stored_weights
from outrider.train.frame import CATEGORIES, Frame, frame_of, with_prompts, with_turns
from outrider.train.generate import generate
from outrider.train.loop import History, Trainer, taps_of
from outrider.train.network import TrimmedHead, trimmed_head
from outrider.train.peers import ALONE, Peers
from outrider.train.plot import plot_history
from outrider.train.shapes import coverage, draft_vocabulary, new_network
from outrider.train.target import TorchTarget
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent

#: Held-out rows of the evaluations during training; the final one uses all.
QUICK_ROWS = 96
#: Longest rows for which dense masks were measured to be faster than tiles.
DENSE_LENGTH = 640


@dataclass(frozen=True)
class Report:
    """What a run came to.

    Attributes:
        finished: whether the schedule ended; if not, running again goes on.
        samples: training rows.
        answer_tokens: supervised tokens among them.
        coverage: share of those in the draft vocabulary.
        parameters: trained parameters.
        steps, seconds: length of the training, resumed runs included.
        evaluation: acceptance on held-out rows.
        stored: the same with the weights as the checkpoint stores them.
        out: folder of the checkpoint.
    """

    finished: bool
    samples: int
    answer_tokens: int
    coverage: float
    parameters: int
    steps: int
    seconds: float
    evaluation: Evaluation
    stored: Evaluation
    out: Path

    def to_json(self) -> str:
        """As JSON text."""
        values = {
            **self.__dict__,
            "out": str(self.out),
            "evaluation": self.evaluation.to_dict(),
            "stored": self.stored.to_dict(),
        }
        return json.dumps(values, indent=2) + "\n"


def train(
    config: TrainConfig,
    progress: Progress = silent,
    stop_after: float = 0.0,
    peers: Peers = ALONE,
) -> Report:
    """Generate data, train a drafter and write its checkpoint.

    A run whose work folder holds data or state goes on from there.

    Args:
        config: everything about the run.
        progress: told about every stage.
        stop_after: seconds of training after which to stop early, 0 for never.
        peers: the processes that train together; conversations must have been written before.

    Raises:
        ModelError: the target cannot be loaded.
        DrafterError: the configuration does not fit the target.
    """
    work = Path(config.work)
    work.mkdir(parents=True, exist_ok=True)
    (work / "config.json").write_text(config.to_json())
    target, tokenizer = open_target(config, progress)
    rows = conversations(target, tokenizer, config, progress)
    return fit(target, rows, config, progress, stop_after, peers)


def open_target(config: TrainConfig, progress: Progress = silent) -> tuple[TorchTarget, Tokenizer]:
    """Load the target and its tokenizer."""
    device = pick_device(config.device)
    with open_model(config.model, progress) as checkpoint:
        tokenizer = checkpoint.tokenizer()
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        target = TorchTarget(checkpoint.config, checkpoint.tensor, device, dtype, progress)
    return target, tokenizer


def open_frame(config: GenerateConfig, target: TorchTarget, tokenizer: Tokenizer) -> Frame:
    """Find the frame of a target's chats, and compose or read the user turns."""
    frame = frame_of(tokenizer, target.config.eos_ids)
    words = plain_words(tokenizer, tokenizer.vocab_size)
    composer = Composer(config.seed, words)
    openers, follow_ups = composer.openers(config.openers), composer.follow_ups(config.openers)
    frame = with_turns(frame, openers, follow_ups, tokenizer)
    return with_prompts(frame, Path(config.prompts), tokenizer) if config.prompts else frame


def fit(
    target: TorchTarget,
    rows: Conversations,
    config: TrainConfig,
    progress: Progress = silent,
    stop_after: float = 0.0,
    peers: Peers = ALONE,
) -> Report:
    """Train on given conversations and write the checkpoint; the rest is as in ``train``."""
    if len(rows) <= config.heldout:
        raise DrafterError(f"{len(rows)} conversations, of which {config.heldout} are held out")
    device, optim, work = target.device, config.optim, Path(config.work)
    training, heldout = rows.split(config.heldout)
    d2t = draft_vocabulary(training, config.shape.draft_vocab, target.config)
    covered = coverage(training, d2t)
    head = trimmed_head(target, d2t.to(device))
    torch.manual_seed(optim.seed)
    network = new_network(config.kind, target.config, config.shape, attention_of(config, device))
    network.to(device)
    network.warm_start(target, config.shape.warm_layers)
    if optim.compile:
        target.compile()
        network.compile_layers()
    judge = Judge(config, target, head, heldout)
    trainer = Trainer(network, target, head, training.to(device), optim, work, peers)
    finished = trainer.run(judge.quick if peers.leads else None, progress, stop_after)
    if peers.leads:
        export_checkpoint(network, d2t, Path(config.out), config.storage)
    peers.wait()
    report = Report(
        finished=finished,
        samples=len(training),
        answer_tokens=int(training.supervised.sum()),
        coverage=covered,
        parameters=sum(p.numel() for p in network.parameters()),
        steps=trainer.history.step,
        seconds=trainer.history.seconds,
        evaluation=judge.full(network.state_dict()),
        stored=judge.full(stored_weights(Path(config.out), network)),
        out=Path(config.out),
    )
    if peers.leads:
        write_report(report, trainer.history, work, config)
    return report


def write_report(report: Report, history: History, work: Path, config: TrainConfig) -> None:
    """Write report.json, history.json and the plot into the work folder."""
    (work / "report.json").write_text(report.to_json())
    (work / "history.json").write_text(json.dumps(asdict(history)) + "\n")
    plot_history(history.log, work / "training.png", f"{config.kind} for {Path(config.model).stem}")


def conversations(
    target: TorchTarget,
    tokenizer: Tokenizer,
    config: TrainConfig,
    progress: Progress = silent,
) -> Conversations:
    """Load all conversations of the data folder, or write them if there are none."""
    folder = Path(config.data or config.work)
    paths = sorted(folder.glob("conversations-*.safetensors"))
    if not paths:
        paths = [write_conversations(target, tokenizer, config.generate, folder, progress)]
    return concatenate([load_conversations(path) for path in paths])


def write_conversations(
    target: TorchTarget,
    tokenizer: Tokenizer,
    config: GenerateConfig,
    folder: Path,
    progress: Progress = silent,
) -> Path:
    """Let the target write conversations into a folder; the file is named by the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"conversations-{config.seed}.safetensors"
    frame = open_frame(config, target, tokenizer)
    fast = target.device.type == "cuda"
    generate(target, frame, config, progress, fast=fast).save(path)
    return path


class Judge:
    """Evaluates a network's weights on held-out greedy rows, in an uncompiled twin of it."""

    def __init__(
        self, config: TrainConfig, target: TorchTarget, head: TrimmedHead, heldout: Conversations
    ) -> None:
        self._target = target
        self._head = head
        self._rows = heldout.select(heldout.greedy)
        self._twin = new_network(config.kind, target.config, config.shape).to(target.device)
        self._batch = 8 if target.device.type == "cuda" else 2

    def quick(self, network: nn.Module) -> Evaluation:
        """Acceptance on some of the rows."""
        count = min(QUICK_ROWS, len(self._rows))
        return self._judge(network.state_dict(), self._rows.select(torch.arange(count)))

    def full(self, weights: Weights) -> Evaluation:
        """Acceptance on all rows with a network's weights."""
        return self._judge(weights, self._rows)

    def _judge(self, weights: Weights, rows: Conversations) -> Evaluation:
        twin, target = self._twin, self._target
        twin.load_state_dict(weights)
        return evaluate(twin, target, self._head, rows, taps_of(twin), CATEGORIES, self._batch)


def pick_device(name: str) -> torch.device:
    """The device of a configuration."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def attention_of(config: TrainConfig, device: torch.device) -> str:
    """How block rows attend: tiles need a GPU and the compiler."""
    wanted = config.optim.attention
    if wanted == "auto":
        long = config.generate.length > DENSE_LENGTH
        return "flex" if device.type == "cuda" and config.optim.compile and long else "dense"
    return wanted
