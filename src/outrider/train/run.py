"""A whole training run: data, network, schedule, checkpoint, report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import torch

from outrider.loaders.checkpoint import Checkpoint
from outrider.loaders.open import open_model
from outrider.text.tokenizer import Tokenizer
from outrider.train.config import Attention, TrainConfig
from outrider.train.data.conversations import Conversations
from outrider.train.data.corpus import conversation_files, conversations
from outrider.train.data.draft_vocabulary import coverage, draft_vocabulary
from outrider.train.export.checkpoint import export_checkpoint, stored_weights
from outrider.train.files import make_folder
from outrider.train.fitting.distributed import ALONE, Peers
from outrider.train.fitting.evaluation import Evaluation
from outrider.train.fitting.history import History
from outrider.train.fitting.judge import Judge
from outrider.train.fitting.plot import plot_history
from outrider.train.fitting.trainer import Trainer
from outrider.train.memory import memory_faults, plan
from outrider.train.networks.heads import trimmed_head
from outrider.train.networks.network import new_network
from outrider.train.networks.target import TorchTarget
from outrider.train.prompts.prompt_file import read_prompts
from outrider.train.ranges import check_ranges, check_target
from outrider.train.work import check_ownership, write_config
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent

#: No more than one of so many conversations is held out.
HELDOUT_SHARE: Final = 4
#: Longest rows for which dense masks were measured to be faster than tiles.
DENSE_LENGTH: Final = 640


def silent_line(line: str) -> None:
    """Say nothing."""


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
    tell: Callable[[str], None] = silent_line,
) -> Report:
    """Generate data, train a drafter and write its checkpoint.

    A run whose work folder holds data or state goes on from there. The folder belongs to one
    configuration; faults that can be found without the target are found before anything is written.
    Batches are made to fit into memory; the folder keeps the configuration that was given.

    Args:
        config: everything about the run.
        progress: told about every stage.
        stop_after: seconds of training after which to stop early, 0 for never.
        peers: the processes that train together; conversations must have been written before.
        tell: told in one line what the run needs, before it begins.

    Raises:
        ModelError: the target cannot be loaded.
        DrafterError: the configuration does not fit the target, the machine or the work folder, or
            a file or folder that it names cannot be used, or memory runs out.
    """
    check_ranges(config)
    device = pick_device(config.device)
    check_ownership(config)
    to_write = [config.work, config.out]
    write = not conversation_files(config)
    if write:
        to_write.append(config.data or config.work)
        if config.generate.prompts:
            read_prompts(Path(config.generate.prompts))
    with memory_faults():
        with open_model(config.model, progress) as checkpoint:
            check_target(config, checkpoint.config)
            fitted = plan(checkpoint.config, config, device, write=write)
            tell(fitted.line)
            for folder in to_write:
                make_folder(Path(folder))
            if peers.leads:
                write_config(config)
            target, tokenizer = load_target(checkpoint, device, progress)
        rows = conversations(target, tokenizer, fitted.config, progress)
        return fit(target, rows, fitted.config, progress, stop_after, peers)


def open_target(config: TrainConfig, progress: Progress = silent) -> tuple[TorchTarget, Tokenizer]:
    """Load the target and its tokenizer; DrafterError if the configuration does not fit it."""
    with open_model(config.model, progress) as checkpoint:
        check_target(config, checkpoint.config)
        return load_target(checkpoint, pick_device(config.device), progress)


def load_target(
    checkpoint: Checkpoint, device: torch.device, progress: Progress = silent
) -> tuple[TorchTarget, Tokenizer]:
    """Load the target and its tokenizer from an open checkpoint."""
    tokenizer = checkpoint.tokenizer()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return TorchTarget(checkpoint.config, checkpoint.tensor, device, dtype, progress), tokenizer


def fit(
    target: TorchTarget,
    rows: Conversations,
    config: TrainConfig,
    progress: Progress = silent,
    stop_after: float = 0.0,
    peers: Peers = ALONE,
) -> Report:
    """Train on given conversations and write the checkpoint; the rest is as in ``train``."""
    if not len(rows):
        raise DrafterError("there are no conversations to train on")
    device, work = target.device, Path(config.work)
    # Compiling takes a C++ compiler without a GPU, and minutes.
    optim = replace(config.optim, compile=config.optim.compile and device.type == "cuda")
    training, heldout = rows.split(min(config.heldout, len(rows) // HELDOUT_SHARE))
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


def pick_device(name: str) -> torch.device:
    """The device of a configuration; DrafterError if this machine has none of that kind."""
    available = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if available else "cpu"
    if name == "cuda" and not available:
        raise DrafterError("device 'cuda': PyTorch finds no CUDA GPU here; take 'cpu' or 'auto'")
    return torch.device(name)


def attention_of(config: TrainConfig, device: torch.device) -> Attention:
    """How block rows attend: tiles need a GPU and the compiler."""
    wanted = config.optim.attention
    if wanted == "auto":
        long = config.generate.length > DENSE_LENGTH
        return "flex" if device.type == "cuda" and config.optim.compile and long else "dense"
    return wanted
