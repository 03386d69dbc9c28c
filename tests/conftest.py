"""Settings of the whole suite."""

from __future__ import annotations

import signal

import pytest
import torch

# Helpers assert as tests do, also under ``python -O``.
pytest.register_assert_rewrite("support", "drafters.drafter_toys")

# Tiny tensors gain nothing from threads, and lose much when the machine is busy.
torch.set_num_threads(1)

# A shell without job control starts what runs in the background deaf to SIGINT, and children would
# inherit that; the tests that send it mean commands that hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
