"""The conversations of a run: read from its folder, or written into it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from outrider.text.tokenizer import Tokenizer
from outrider.train.config import GenerateConfig, TrainConfig
from outrider.train.data.chat_frame import Frame, frame_of, with_prompts, with_turns
from outrider.train.data.conversations import ANEW, Conversations, concatenate, load_conversations
from outrider.train.data.generation import generate
from outrider.train.files import make_folder
from outrider.train.networks.target import TorchTarget
from outrider.train.prompts.composer import Composer
from outrider.train.prompts.plain_words import plain_words
from outrider.train.prompts.prompt_texts import read_prompt_texts
from outrider.types.errors import DrafterError
from outrider.types.progress import Progress, silent

CONVERSATIONS: Final = "conversations-*.safetensors"


def conversation_files(config: TrainConfig) -> list[Path]:
    """The files of conversations that a run reads, none if it has to write them."""
    return sorted(Path(config.data or config.work).glob(CONVERSATIONS))


def conversations(
    target: TorchTarget,
    tokenizer: Tokenizer,
    config: TrainConfig,
    progress: Progress = silent,
) -> Conversations:
    """Load all conversations of the data folder, or write them if there are none."""
    paths = conversation_files(config)
    if not paths:
        folder = Path(config.data or config.work)
        paths = [write_conversations(target, tokenizer, config.generate, folder, progress)]
    parts = [load_conversations(path) for path in paths]
    vocab = target.config.vocab_size
    for path, part in zip(paths, parts, strict=True):
        if part.ids.shape[1] != parts[0].ids.shape[1]:
            raise DrafterError(f"{path}: has rows of another length than {paths[0].name}")
        if part.ids.numel() and not 0 <= int(part.ids.min()) <= int(part.ids.max()) < vocab:
            raise DrafterError(f"{path}: has tokens that the model has not; {ANEW}")
    return concatenate(parts)


def write_conversations(
    target: TorchTarget,
    tokenizer: Tokenizer,
    config: GenerateConfig,
    folder: Path,
    progress: Progress = silent,
) -> Path:
    """Let the target write conversations into a folder; the file is named by the seed."""
    make_folder(folder)
    path = folder / f"conversations-{config.seed}.safetensors"
    frame = open_frame(config, target, tokenizer)
    fast = target.device.type == "cuda"
    generate(target, frame, config, progress, fast=fast).save(path)
    return path


def open_frame(config: GenerateConfig, target: TorchTarget, tokenizer: Tokenizer) -> Frame:
    """Find the frame of a target's chats, and compose or read the user turns."""
    frame = frame_of(tokenizer, target.config.eos_ids)
    words = plain_words(tokenizer, tokenizer.vocab_size)
    composer = Composer(read_prompt_texts(), config.seed, words)
    openers, follow_ups = composer.openers(config.openers), composer.follow_ups(config.openers)
    frame = with_turns(frame, openers, follow_ups, tokenizer)
    return with_prompts(frame, Path(config.prompts), tokenizer) if config.prompts else frame
