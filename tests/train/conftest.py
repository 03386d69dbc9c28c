"""One trained target and one trained drafter for all tests of this folder."""

from __future__ import annotations

import pytest
import torch
from tiny_training import speaking_target, trained


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny products are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def target(one_thread):
    return speaking_target()


@pytest.fixture(scope="session")
def dspark(target, tmp_path_factory):
    return trained("dspark", target, tmp_path_factory.mktemp("dspark"))
