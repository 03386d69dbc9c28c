"""Drafter checkpoints: folders with config.json and safetensors, checked against the target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from torch import Tensor

from outrider.config.drafter import DrafterConfig, MtpConfig
from outrider.drafters.base import Drafter
from outrider.drafters.block.backbone import BlockBackbone
from outrider.drafters.block.dflash import DFlashDrafter
from outrider.drafters.block.dflash2 import CandidateSelector, ConvolvedBackbone, DFlash2Drafter
from outrider.drafters.block.dspark import DSparkDrafter
from outrider.drafters.block.markov import ConfidenceHead, load_markov
from outrider.drafters.head import DraftHead
from outrider.drafters.layouts import read_block_config, read_kind, read_mtp_config
from outrider.drafters.mtp.drafter import MtpDrafter
from outrider.kernels.table import Kernels
from outrider.kernels.tensors import index_range, zeros
from outrider.kernels.weights import BLOCK_FORMATS, RawWeight, raw_float
from outrider.loaders.fields import read_json
from outrider.loaders.safetensors import TensorFolder
from outrider.models.dense import DenseModel
from outrider.types.errors import DrafterError, ModelError

#: Older SpecForge files nest the heads under this prefix.
LEGACY_PREFIX: Final = "logit_head."
#: Other spellings of a tensor's name.
ALIASES: Final = {
    "mask_embedding": ("mask_embedding.weight",),
    "candidate_selector.predecessor_codebook": ("candidate_selector.predecessor_codebook.weight",),
    "candidate_selector.successor_codebook": ("candidate_selector.successor_codebook.weight",),
}
#: Biases that some exports leave out; they are zero then.
OPTIONAL_BIASES: Final = frozenset(
    {
        "confidence_head.proj.bias",
        "markov_head.gate_proj.bias",
        "markov_head.joint_proj.bias",
    }
)
#: Most rows of one draft; drafters have up to 16.
MOST_DRAFT: Final = 1024
#: Forms of matrices stored as uint8: GGUF's blocks of 32 weights, told apart by bytes per block.
QUANTIZED: Final = ("Q8_0", "Q4_1")


class DrafterTensors:
    """The tensors of a drafter under one spelling of their names.

    Callable as a ``TensorSource``.
    """

    def __init__(self, folder: TensorFolder, quantized: bool) -> None:
        """Read names.

        Args:
            folder: the checkpoint.
            quantized: matrices may be stored as uint8 in one of the QUANTIZED layouts.
        """
        self._folder = folder
        self._quantized = quantized
        self._stored = {name.removeprefix(LEGACY_PREFIX): name for name in folder.names()}
        for name, others in ALIASES.items():
            for other in others:
                if other in self._stored:
                    self._stored.setdefault(name, self._stored[other])

    def has(self, name: str) -> bool:
        """Whether the checkpoint has the tensor."""
        return name in self._stored

    def __call__(self, name: str, shape: tuple[int, ...]) -> RawWeight:
        """Return a tensor.

        Raises:
            ModelError: it is missing, or of another shape or type.
        """
        stored = self._stored.get(name, name)
        if name not in self._stored and name in OPTIONAL_BIASES:
            return raw_float(name, zeros(*shape))
        if self._quantized and len(shape) == 2 and self._folder.format(stored) == "U8":
            return self._blocks(stored, shape)
        if name == "mask_embedding" and self._folder.shape(stored) == (1, *shape):
            weight = self._folder.tensor(stored)
            return RawWeight(stored, shape, weight.format, weight.data[0])
        return self._folder.tensor(stored, shape)

    def _blocks(self, stored: str, shape: tuple[int, ...]) -> RawWeight:
        """A matrix in blocks, of whichever format fills its rows."""
        found = self._folder.shape(stored)
        sizes = {}
        for name in QUANTIZED:
            block, nbytes = BLOCK_FORMATS[name]
            if shape[1] % block:
                raise DrafterError(
                    f"{self._folder.source}: tensor {stored} has rows of {shape[1]}, not a "
                    f"multiple of {block}, so it cannot be {name}"
                )
            sizes[shape[0], shape[1] // block * nbytes] = name
        if found not in sizes:
            known = " or ".join(f"{list(size)} ({name})" for size, name in sizes.items())
            raise DrafterError(
                f"{self._folder.source}: tensor {stored} has shape {list(found)}; expected {known}"
            )
        return RawWeight(stored, shape, sizes[found], self._folder.integers(stored, found))

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return an integer tensor.

        Raises:
            ModelError: it is missing, or of another shape or type.
        """
        return self._folder.integers(self._stored.get(name, name), shape)


def draft_page_nbytes(path: Path, kernels: Kernels) -> int:
    """Bytes of a page of a drafter's context cache, which its configuration tells.

    Raises:
        DrafterError: the configuration cannot be read, or describes no drafter.
    """
    try:
        fields = read_json(path / "config.json")
        kind = read_kind(fields)
        if kind == "mtp":
            mtp = read_mtp_config(fields)
            layers, heads, width = 1, mtp.num_kv_heads, mtp.head_dim
            return kernels.allocate(layers, 1, heads, width, kernels.draft_kv_dtype).page_nbytes
        # Whether a vector of the checkpoint stands for the mask changes no size.
        block = read_block_config(fields, kind, learned_mask=True)
    except ModelError as error:
        raise DrafterError(str(error)) from None
    layers, heads, width = block.num_layers, block.num_kv_heads, block.head_dim
    return kernels.allocate(layers, 1, heads, width, kernels.draft_kv_dtype).page_nbytes


def load_drafter(
    path: Path, target: DenseModel, draft_pages: int, positions: int | None = None
) -> Drafter:
    """Load a drafter for a target.

    Args:
        path: folder of a DFlash, DFlash2, DSpark or MTP checkpoint.
        target: the model it will draft for.
        draft_pages: pages of its context cache.
        positions: most tokens of a session; None takes the target's own limit.

    Raises:
        DrafterError: the folder cannot be read, holds no drafter, or one that does not fit; one
            line that names the field or tensor and both values.
    """
    try:
        longest = target.config.max_position if positions is None else positions
        return _load(path, target, draft_pages, longest)
    except ModelError as error:
        raise DrafterError(str(error)) from None


def _load(path: Path, target: DenseModel, draft_pages: int, longest: int) -> Drafter:
    fields = read_json(path / "config.json")
    kind = read_kind(fields)
    quantization = fields.sub("outrider_quantization").string("format", None)
    if quantization not in (None, *QUANTIZED):
        raise fields.sub("outrider_quantization").error("format", " or ".join(QUANTIZED))
    tensors = DrafterTensors(TensorFolder(path), quantization is not None)
    if kind == "mtp":
        mtp_config = read_mtp_config(fields)
        # Tables for what a file claims beyond what can occur might not fit memory.
        mtp_config = replace(mtp_config, max_position=min(mtp_config.max_position, longest))
        _check_fit(str(path), mtp_config, target)
        head = _head(str(path), mtp_config, target, tensors)
        return MtpDrafter(mtp_config, target, head, tensors, draft_pages)
    config = read_block_config(fields, kind, tensors.has("mask_embedding"))
    config = replace(config, max_position=min(config.max_position, longest))
    _check_fit(str(path), config, target)
    _check_block(str(path), config, target)
    head = _head(str(path), config, target, tensors)
    return _assemble(config, target, head, tensors, draft_pages)


def _assemble(
    config: DrafterConfig,
    target: DenseModel,
    head: DraftHead,
    tensors: DrafterTensors,
    draft_pages: int,
) -> Drafter:
    """Put a block drafter together; the one place that knows the kinds."""
    kernels = target.kernels
    if config.kind == "dflash2":
        convolved = ConvolvedBackbone(config, kernels, tensors)
        selector = CandidateSelector(config, kernels, tensors)
        return DFlash2Drafter(convolved, target, head, draft_pages, selector)
    backbone = BlockBackbone(config, kernels, tensors)
    if config.kind == "dflash":
        return DFlashDrafter(backbone, target, head, draft_pages)
    markov = load_markov(config, kernels, tensors) if config.markov_rank else None
    confidence = ConfidenceHead(config, kernels, tensors) if config.confidence else None
    return DSparkDrafter(backbone, target, head, draft_pages, markov, confidence)


def _check_fit(source: str, config: DrafterConfig | MtpConfig, target: DenseModel) -> None:
    """Refuse a drafter of another model, and a length that no drafter has."""
    if isinstance(config, MtpConfig):
        field, length = "draft_depth", config.depth
    else:
        field, length = "block_size", config.block_size
    if length > MOST_DRAFT:
        raise DrafterError(f"{source}: {field} is {length}; at most {MOST_DRAFT} is supported")
    _require(source, "hidden_size", config.hidden_size, target.config.hidden_size)
    _require(source, "vocab_size", config.vocab_size, target.config.vocab_size)
    if config.num_target_layers:
        layers = target.config.num_layers
        _require(source, "num_target_layers", config.num_target_layers, layers)
    if not 1 <= config.draft_vocab_size <= config.vocab_size:
        raise DrafterError(
            f"{source}: draft_vocab_size is {config.draft_vocab_size}; it must be within "
            f"vocab_size {config.vocab_size}"
        )


def _require(source: str, field: str, found: int, expected: int) -> None:
    if found != expected:
        raise DrafterError(f"{source}: {field} is {found}, but the target's is {expected}")


def _check_block(source: str, config: DrafterConfig, target: DenseModel) -> None:
    """Refuse taps and mask tokens that the target does not have."""
    layers = target.config.num_layers
    outside = [tap for tap in config.taps if not -1 <= tap < layers]
    if outside or not config.taps:
        raise DrafterError(
            f"{source}: target_layer_ids has {outside[0] if outside else 'no layer'}; it must be "
            f"within -1..{layers - 1}, as the target has {layers} layers"
        )
    if not config.learned_mask and not 0 <= config.mask_token_id < target.config.vocab_size:
        raise DrafterError(
            f"{source}: mask_token_id is {config.mask_token_id}; it must be below the target's "
            f"vocab_size {target.config.vocab_size}"
        )


def _head(
    source: str,
    config: DrafterConfig | MtpConfig,
    target: DenseModel,
    tensors: DrafterTensors,
) -> DraftHead:
    """The target's head, or a trimmed one.

    A whole head in the file is a frozen copy of the target's and is left alone; a trimmed one may
    have been trained.
    """
    ids = _draft_vocabulary(source, config, tensors)
    own = None
    if ids is not None and tensors.has("lm_head.weight"):
        own = tensors("lm_head.weight", (len(ids), config.hidden_size))
    if isinstance(config, MtpConfig):
        return DraftHead(target, ids, own)
    return DraftHead(target, ids, own, config.output_multiplier, config.logit_softcap)


def _draft_vocabulary(
    source: str, config: DrafterConfig | MtpConfig, tensors: DrafterTensors
) -> Tensor | None:
    """Target ids that a trimmed vocabulary keeps: draft id i means i + d2t[i]."""
    if config.draft_vocab_size == config.vocab_size and not tensors.has("d2t"):
        return None
    offsets = tensors.integers("d2t", (config.draft_vocab_size,)).long()
    ids = index_range(0, len(offsets)) + offsets
    outside = ids[(ids < 0) | (ids >= config.vocab_size)].tolist()
    if outside:
        raise DrafterError(
            f"{source}: d2t maps to token {outside[0]}; it must be below vocab_size "
            f"{config.vocab_size}"
        )
    return ids
