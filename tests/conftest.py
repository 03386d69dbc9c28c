"""Settings of the whole suite."""

from __future__ import annotations

import torch

# Tiny tensors gain nothing from threads, and lose much when the machine is busy.
torch.set_num_threads(1)
