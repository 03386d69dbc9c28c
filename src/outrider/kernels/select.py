"""Chooses an implementation of the operator table."""

from __future__ import annotations

import logging
from typing import Final, get_args

from outrider.config.engine import Device
from outrider.kernels.reference import ReferenceKernels
from outrider.kernels.table import Kernels
from outrider.types.errors import RequestError

#: Code paths that ``path`` may name; all but the last are the native kernels'.
PATHS: Final = ("avx512vnni", "avx2", "portable", "reference")
#: What ``device`` may be.
DEVICES: Final[tuple[str, ...]] = get_args(Device)

_LOG: Final = logging.getLogger("outrider")


def select(device: str = "auto", threads: int | None = None, path: str | None = None) -> Kernels:
    """Return the fastest implementation this machine can run.

    Args:
        device: "auto" or "cpu".
        threads: threads of the native kernels; None takes a core each.
        path: pins a code path, a member of PATHS; bits may differ between paths.

    Raises:
        RequestError: the device or the path is unknown, or this machine cannot run the path; it
            names the option, as the command line and ``LLM`` call it.
    """
    if device not in DEVICES:
        raise RequestError("device", f"must be {' or '.join(DEVICES)}, not {device!r:.60}")
    if path is not None and path not in PATHS:
        raise RequestError("kernels", f"must be one of {', '.join(PATHS)}, not {path!r:.60}")
    if path == "reference":
        return ReferenceKernels()
    try:
        from outrider.kernels import _native
        from outrider.kernels.cpu.kernels import CpuKernels
    except ImportError:
        if path is not None:
            raise RequestError("kernels", f"{path} needs the native ones: {_REMEDY}") from None
        _LOG.warning("the native kernels are missing, so the slow reference runs: %s", _REMEDY)
        return ReferenceKernels()
    here = _native.paths()
    if path is not None and path not in here:
        raise RequestError(
            "kernels", f"{path} cannot run on this machine; {', '.join(here)} and reference can"
        )
    return CpuKernels(threads, path)


_REMEDY: Final = "install a C++20 compiler, then `pip install --force-reinstall --no-deps .`"
