"""Everything a training run depends on."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["dspark", "dflash", "mtp"]
#: How block rows attend: with a mask of truth values, or in tiles (flex_attention).
Attention = Literal["dense", "flex"]
#: How a checkpoint stores its matrices: GGUF's blocks or bfloat16.
Storage = Literal["bf16", "q8_0", "q4_1"]


@dataclass(frozen=True)
class GenerateConfig:
    """How the target writes its own training conversations.

    Attributes:
        samples: rows to write, unless ``seconds`` runs out first.
        seconds: wall-clock limit, 0 for none.
        batch: rows written side by side, fewer if there is not the memory.
        length: tokens of a row; conversations go on with new turns until it is full.
        user_tokens: most tokens of a user turn that the model writes itself.
        user_temperature: temperature of user turns.
        user_min_p: user tokens less likely than this share of the likeliest are not drawn.
        answer_temperature: temperature of answers that are not greedy.
        greedy_share: share of rows whose answers are greedy.
        free_share: share of rows whose first user turn is all the model's own.
        openers: first user turns composed for each category; later ones are as many in all.
        short_share: share of rows whose answers are cut after ``short_tokens``, to make room for
            more turns: the beginning of an answer is the hardest part to draft.
        short_tokens: most tokens of such answers.
        max_turns: most answers in a row.
        min_room: a new turn begins only with that many tokens left in the row.
        keep_loops: share of rows that are allowed to go on repeating themselves.
        min_supervised: rows with fewer answer tokens are dropped.
        prompts: file with one user message a line to answer, instead of invented ones; "" for none.
        seed: keys every draw.
        key_step: without a GPU, keys are attended in multiples of this.
    """

    samples: int = 160_000
    seconds: float = 0.0
    batch: int = 2048
    length: int = 512
    user_tokens: int = 160
    user_temperature: float = 1.0
    user_min_p: float = 0.02
    answer_temperature: float = 0.7
    greedy_share: float = 0.7
    free_share: float = 0.12
    openers: int = 6000
    short_share: float = 0.5
    short_tokens: int = 128
    max_turns: int = 4
    min_room: int = 96
    keep_loops: float = 0.2
    min_supervised: int = 24
    prompts: str = ""
    seed: int = 0
    key_step: int = 64


@dataclass(frozen=True)
class ShapeConfig:
    """Shape of the drafter; zeros and empty lists follow the target.

    Attributes:
        layers: decoder layers (block drafters; an MTP head has one).
        intermediate_size: width of the feed-forward layers, 0 for the target's.
        block: rows of a block; for MTP, the depth of the chain.
        taps: target layers to read, empty for the usual spread of ``num_taps``.
        num_taps: how many, if ``taps`` is empty.
        draft_vocab: rows of the trimmed head.
        markov_rank: width of the Markov head, 0 for none.
        markov_kind: its form.
        confidence: whether to train a confidence head.
        warm_layers: start from the weights of the target's last layers; needs its layer shape.
    """

    layers: int = 3
    intermediate_size: int = 0
    block: int = 7
    taps: tuple[int, ...] = ()
    num_taps: int = 5
    draft_vocab: int = 12_288
    markov_rank: int = 64
    markov_kind: Literal["vanilla", "gated"] = "vanilla"
    confidence: bool = True
    warm_layers: bool = False


@dataclass(frozen=True)
class OptimConfig:
    """Optimisation.

    Attributes:
        steps: steps of the whole schedule, 0 if only ``seconds`` counts.
        seconds: wall-clock length of the whole schedule, summed over resumed runs, 0 if only
            ``steps`` counts.
        rows: conversations in a batch, of each process; fewer if there is not the memory.
        anchors: blocks drawn from each conversation.
        matrices: optimiser of the layers' matrices; everything else is AdamW's.
        matrix_lr: peak learning rate of the layers' matrices.
        lr: peak learning rate of embeddings, Markov tables, norms and the confidence head.
        beta1, beta2: AdamW's decay rates; beta1 is also Muon's momentum.
        weight_decay: decoupled decay of the layers' matrices.
        warmup: share of the schedule in which the rate rises.
        floor: final rate as a share of the peak.
        clip: largest norm of the gradient.
        ce_share: share of the schedule trained on cross-entropy alone; after it the loss is
            ``ce_weight`` CE + ``tv_weight`` L1 + confidence BCE.
        ce_weight, tv_weight, confidence_weight: those weights.
        decay: position k of a block weighs exp(-k / decay), if ``pace`` is 0.
        pace: else it weighs what hangs on it as the drafter stands: the expected length of the
            accepted run from there on, each acceptance a taken as 1 - pace + pace a.
        seed: keys the order of the data and the initial weights.
        attention: how block rows attend: "dense" masks or "flex" attention; "auto" picks.
        compile: fuse the layers with torch.compile, on a GPU.
        graphs: capture the step into a CUDA graph, on a GPU.
        log_every: steps between entries of the log.
        save_seconds: wall-clock between resumable checkpoints.
        eval_seconds: wall-clock between evaluations on held-out rows.
    """

    steps: int = 0
    seconds: float = 600.0
    rows: int = 64
    anchors: int = 128
    matrices: Literal["muon", "adamw"] = "muon"
    matrix_lr: float = 4e-3
    lr: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.05
    warmup: float = 0.04
    floor: float = 0.01
    clip: float = 1.0
    ce_share: float = 0.6
    ce_weight: float = 0.1
    tv_weight: float = 0.9
    confidence_weight: float = 1.0
    decay: float = 4.0
    pace: float = 0.0
    seed: int = 1
    attention: Literal["auto", "dense", "flex"] = "auto"
    compile: bool = True
    graphs: bool = True
    log_every: int = 100
    save_seconds: float = 120.0
    eval_seconds: float = 120.0


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    Attributes:
        kind: what to train.
        model: path of the target.
        out: folder of the finished checkpoint.
        work: folder of resumable state and logs.
        data: folder of conversations, which several runs may share; "" for the work folder.
        device: "cuda", "cpu" or "auto".
        storage: how the checkpoint stores its matrices: "q8_0" loses nothing; "q4_1" has 4 bits for
            the big products, so it drafts faster and accepts about 1% less.
        heldout: rows kept out of training for evaluation, at most a quarter of all.
        generate: the data.
        shape: the drafter.
        optim: the optimisation.
    """

    kind: Kind = "dspark"
    model: str = "smollm2"
    out: str = "drafter"
    work: str = "training"
    data: str = ""
    device: Literal["auto", "cuda", "cpu"] = "auto"
    storage: Storage = "q8_0"
    heldout: int = 384
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)

    def to_json(self) -> str:
        """The configuration as JSON text; ``load_config`` reads it back."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"
