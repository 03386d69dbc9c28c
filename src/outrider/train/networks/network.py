"""The networks that can be trained."""

from __future__ import annotations

from outrider.config.model import ModelConfig
from outrider.train.config import Attention, Kind, ShapeConfig
from outrider.train.networks.block import BlockDrafter
from outrider.train.networks.mtp import MtpHead
from outrider.train.networks.shapes import block_config, mtp_config

#: A drafter network of any kind.
Network = BlockDrafter | MtpHead


def new_network(
    kind: Kind, target: ModelConfig, shape: ShapeConfig, attention: Attention = "dense"
) -> Network:
    """A drafter with fresh weights."""
    if kind == "mtp":
        return MtpHead(mtp_config(target, shape))
    return BlockDrafter(block_config(target, shape, kind), attention)
