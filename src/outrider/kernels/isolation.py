"""What other libraries set for a process or a thread, kept away from the engine's arithmetic.

Defaults of a thread (its rounding mode; autocast, modes, default device and threads of torch; the
error state of numpy) are replaced for the time of a call and put back after it. Defaults of the
process (torch's default dtype, precision of products, warning filters) belong to every thread at
once, and another thread may change them in the middle of a step: nothing of the engine reads them,
so nothing here needs to write them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import numpy as np
import torch

#: Not smaller than any machine's ``fenv_t``; glibc's for x86-64 has 32 bytes.
_ENVIRONMENT_BYTES: Final = 64


@contextmanager
def isolated() -> Iterator[None]:
    """Run the body with this thread's defaults as the engine needs them; also a decorator.

    Rounding is to nearest, nothing is flushed to zero and nothing traps; numpy raises and warns of
    nothing; torch does not record, autocast, dispatch to anyone's mode or start threads. Tensors
    made inside are inference tensors. Afterwards everything is the caller's again.
    """
    with (
        _FLOATS(),
        np.errstate(all="ignore"),
        torch.inference_mode(),
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),
        torch._C._DisableAutocast(),
        _one_thread(),
    ):
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on the calling thread alone.

    What torch computes in a step is small, and its threads spin after every parallel region, on the
    cores that the native pool needs; and they round as the thread did that first made them.
    """
    before = torch.get_num_threads()
    try:
        if before != 1:
            _SET_THREADS(1)
        yield
    finally:
        if before != 1:
            _SET_THREADS(before)


def _thread_setter() -> Callable[[int], object]:
    """Sets torch's thread count, if possible for the calling thread alone.

    torch's own setter also changes what threads begin with that have not used torch yet.
    """
    before = torch.get_num_threads()
    try:
        setter = ctypes.CDLL(None).omp_set_num_threads
    except (AttributeError, OSError, TypeError):
        return torch.set_num_threads
    # The process may hold another OpenMP than torch's.
    setter.argtypes, setter.restype = [ctypes.c_int], None
    setter(before + 1)
    heard = torch.get_num_threads() == before + 1
    setter(before)
    return setter if heard else torch.set_num_threads


def _float_mode() -> Callable[[], AbstractContextManager[None]]:
    """C's floating-point environment as a program starts with it, or nothing if C is out of reach.

    The native kernels set it themselves for what they compute.
    """
    try:
        library = ctypes.CDLL(None)
        read, write = library.fegetenv, library.fesetenv
        default = ctypes.c_void_p(-1)  # FE_DFL_ENV of glibc and musl
        if sys.platform == "darwin":
            start = ctypes.c_byte.in_dll(library, "_FE_DFL_ENV")
            default = ctypes.c_void_p(ctypes.addressof(start))
    except (AttributeError, OSError, TypeError, ValueError):
        return nullcontext
    read.argtypes = write.argtypes = [ctypes.c_void_p]

    @contextmanager
    def floats() -> Iterator[None]:
        before = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
        read(before)
        try:
            write(default)
            yield
        finally:
            write(before)

    return floats


_FLOATS: Final = _float_mode()
_SET_THREADS: Final = _thread_setter()
