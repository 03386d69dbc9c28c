"""What a process may do around the threads: change the floating-point mode, fork."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from kernel_toys import raw, same_bits

from outrider.kernels.weights import RawWeight

FORKED = """
import os, sys
from outrider.kernels.cpu.kernels import CpuKernels
from outrider.kernels.weights import raw_float
import torch
kernels = CpuKernels(2)
weight = raw_float("w", torch.ones(64, 64))
matrix = kernels.prepare([weight])
if os.fork() == 0:
    try:
        kernels.linear(torch.ones(1, 64), matrix)
    except RuntimeError as error:
        print(error, flush=True)
    print(CpuKernels(2).prepare([weight]).out_features, flush=True)
    sys.exit()
os.wait()
print(float(kernels.linear(torch.ones(1, 64), matrix)[0, 0]))
"""


def test_a_changed_floating_point_mode_changes_no_bit(native):
    """Products of 1e-40 are flushed to zero by a mode that other libraries may set."""
    from outrider.kernels.cpu.kernels import CpuKernels

    path = native.name.removeprefix("cpu-")
    weight = RawWeight("w", (65536, 64), "F32", torch.full((65536, 64), 1e-20))
    x = torch.full((1, 64), 1e-20)
    for threads in (1, 2):
        kernels = CpuKernels(threads, path)
        matrix = kernels.prepare([weight])
        before = kernels.linear(x, matrix)
        assert before.min() > 0
        assert torch.set_flush_denormal(True)
        try:
            after = kernels.linear(x, matrix)
            begun = CpuKernels(threads, path)
            later = begun.linear(x, begun.prepare([weight]))
        finally:
            torch.set_flush_denormal(False)
        assert same_bits(after, before)
        assert same_bits(later, before)


def test_the_calling_thread_keeps_its_mode(native):
    tiny = torch.tensor([1e-20])
    assert torch.set_flush_denormal(True)
    try:
        native.linear(torch.ones(1, 64), native.prepare([raw("F32", 64, 64)]))
        assert float((tiny * tiny)[0]) == 0.0
    finally:
        torch.set_flush_denormal(False)


def test_a_forked_child_is_told_instead_of_waiting():
    pytest.importorskip("outrider.kernels._native")
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )
    message, made, ours = ran.stdout.splitlines()
    assert "forked" in message
    assert "spawn" in message
    assert int(made) == 64
    assert float(ours) == 64.0
