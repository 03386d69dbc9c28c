"""Implementations under test: the reference and every native code path of this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import outrider.kernels
from outrider.config.kv import KV_CACHE_DTYPES
from outrider.kernels.reference import ReferenceKernels


def _substitute(folder: str) -> None:
    """Load the extension from another build, for ``scripts/sanitize``."""
    (path,) = Path(folder).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("outrider.kernels._native", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[spec.name] = outrider.kernels._native = module


if "OUTRIDER_TEST_NATIVE" in os.environ:
    _substitute(os.environ["OUTRIDER_TEST_NATIVE"])

try:
    from outrider.kernels import _native
    from outrider.kernels.cpu.kernels import CpuKernels

    NATIVE = {path: CpuKernels(threads=2, path=path) for path in _native.paths()}
except ImportError:
    NATIVE = {}

ALL = {"reference": ReferenceKernels(), **NATIVE}


def pytest_generate_tests(metafunc):
    if "kernels" in metafunc.fixturenames:
        metafunc.parametrize("kernels", ALL.values(), ids=ALL.keys())
    if "native" in metafunc.fixturenames:
        if not NATIVE:
            metafunc.parametrize(
                "native", [pytest.param(None, marks=pytest.mark.skip("no extension"))]
            )
        else:
            metafunc.parametrize("native", NATIVE.values(), ids=NATIVE.keys())


@pytest.fixture(params=KV_CACHE_DTYPES[1:])
def kv_dtype(request):
    return request.param


@pytest.fixture(scope="session")
def reference():
    return ALL["reference"]
