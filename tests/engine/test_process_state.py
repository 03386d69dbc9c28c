"""What other libraries set for a process or a thread changes no token, no text and no bit."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import process_states
from outrider.kernels.isolation import isolated
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.weights import raw_float

SCRIPT = Path(process_states.__file__)
KERNELS = ["reference"]
if importlib.util.find_spec("outrider.kernels._native") is not None:
    from outrider.kernels import _native

    KERNELS.append(_native.paths()[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("states")
    process_states.write_checkpoints(made)
    return made


def child(folder: Path, kernels: str, what: str, prelude: str = "", *flags: str, **env: str):
    """What the script prints, after ``prelude`` has run in its process."""
    code = f"{prelude}\nimport runpy, sys\nsys.argv = sys.argv[1:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, *flags, "-c", code, str(SCRIPT), str(folder), kernels, what],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kernels", KERNELS)
def test_no_state_changes_an_answer(folder: Path, kernels: str) -> None:
    assert child(folder, kernels, "walk") == []


ROUND_UP = "import ctypes\nctypes.CDLL(None).fesetround(0x800)"
BEGINNINGS = {
    "other hashes, no assertions, a thread each": (
        "",
        ("-O",),
        {"PYTHONHASHSEED": "4", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    ),
    "rounding up from the start": (ROUND_UP, (), {}),
    "rounding up while numpy is imported": (
        f"{ROUND_UP}\nimport numpy, torch\nctypes.CDLL(None).fesetround(0)",
        (),
        {},
    ),
}


@pytest.mark.parametrize("kernels", KERNELS)
def test_however_a_process_begins(folder: Path, kernels: str) -> None:
    right = child(folder, kernels, "digest")
    found = {
        name: child(folder, kernels, "digest", prelude, *flags, **env)
        for name, (prelude, flags, env) in BEGINNINGS.items()
    }
    assert found == dict.fromkeys(BEGINNINGS, right)


@pytest.mark.parametrize("inputs", [33, 576, 4096])
def test_products_of_the_reference_are_products_of_float32(inputs: int) -> None:
    noise = torch.Generator().manual_seed(inputs)
    weight = torch.randn((1000, inputs), generator=noise, dtype=torch.float32)
    x = torch.randn((11, inputs), generator=noise, dtype=torch.float32)
    kernels = ReferenceKernels()
    prepared = kernels.prepare([raw_float("w", weight)])
    exact = x.double() @ weight.double().T
    before = kernels.linear(x, prepared)
    assert (before - exact).abs().max() < 1e-6 * inputs
    threads = torch.get_num_threads()
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(3)
    try:
        assert torch.equal(kernels.linear(x, prepared), before)
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_num_threads(threads)


def test_inside_everything_is_as_the_engine_needs_it() -> None:
    third = np.float64(1.0)
    names = ("flushed denormals", "rounding up", "numpy raises", "device context", "autocast")
    with ExitStack() as states:
        for name in (*names, "dispatch mode"):
            states.enter_context(process_states.STATES[name]())
        with isolated():
            assert process_states.C.fegetround() == 0
            assert sys.float_info.min * 0.5 > 0.0
            assert third / 3 == 0.3333333333333333
            assert third / np.float64(0.0) == np.inf
            assert torch.zeros(1, dtype=torch.float32).device.type == "cpu"
            assert not torch.is_grad_enabled()
            assert torch.get_num_threads() == 1
        assert process_states.C.fegetround() == process_states.UPWARD
        assert sys.float_info.min * 0.5 == 0.0
        assert np.geterr()["divide"] == "raise"


def test_an_error_gives_the_caller_everything_back() -> None:
    torch.set_num_threads(2)
    try:
        before = process_states.callers()
        with pytest.raises(KeyboardInterrupt), isolated():
            raise KeyboardInterrupt
        assert process_states.callers() == before
    finally:
        torch.set_num_threads(1)


def test_other_threads_keep_their_threads() -> None:
    """A thread that uses torch for the first time during a step starts as it would without it."""
    torch.set_num_threads(2)
    try:
        seen: list[int] = []
        with isolated():
            thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
            thread.start()
            thread.join()
        assert seen == [2]
    finally:
        torch.set_num_threads(1)
