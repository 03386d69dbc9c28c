"""Bounds of what a configuration may ask for.

They are far beyond any model, and far below what would fill memory before a tensor is looked at.
"""

from __future__ import annotations

from typing import Final

#: Decoder layers; the largest published models have about 130.
MAX_LAYERS: Final = 4096
#: Width of the residual stream and of one head, and heads of one layer.
MAX_WIDTH: Final = 1 << 20
#: Width of a feed-forward layer, and rows of the embedding.
MAX_ROWS: Final = 1 << 26
#: Positions of a context, scaled or not.
MAX_POSITIONS: Final = 1 << 28
#: Values of one token's keys in all layers together; published models stay below a million.
MAX_KEYS: Final = 1 << 22
#: What a norm may add to the mean square. Below the least, float32 holds a zero.
MIN_EPS: Final = 1e-37
MAX_EPS: Final = 1.0
