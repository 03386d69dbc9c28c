"""States that other libraries give a process or a thread, and a process that goes through them all.

``python process_states.py FOLDER KERNELS walk`` loads a tiny model and serves it under every state,
and prints as JSON which answers differ and what the caller did not get back; with ``digest`` for
``walk`` it prints a hash of the answers. It is a process of its own because some states cannot be
undone, and the failures they once caused ended the process.
"""

from __future__ import annotations

import ctypes
import decimal
import gc
import hashlib
import json
import locale
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from drafters import drafter_toys as toys
from outrider import LLM, SamplingParams
from outrider.kernels.isolation import isolated
from outrider.kernels.select import select
from outrider.kernels.weights import raw_float
from outrider.loaders.checkpoint import tensor_shapes
from outrider.models.dense import DenseModel
from support.tiny import tiny_tokenizer

C = ctypes.CDLL(None)
UPWARD, DOWNWARD, TO_ZERO = 0x800, 0x400, 0xC00

State = Callable[[], AbstractContextManager[object]]


@contextmanager
def put(setter: Callable[[Any], object], during: object, after: object) -> Iterator[None]:
    """Set something for a while."""
    setter(during)
    try:
        yield
    finally:
        setter(after)


class WrongFunctions(TorchFunctionMode):
    """Every function of torch in Python gives something else."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        floats = isinstance(result, torch.Tensor) and result.is_floating_point()
        return result + 1 if floats else result


class WrongDispatch(TorchDispatchMode):
    """Every operator of torch fails."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} was seen by another's mode")


@contextmanager
def anomalies() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            yield


@contextmanager
def strict_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextmanager
def strict_numpy() -> Iterator[None]:
    with np.errstate(all="raise"):
        np.setbufsize(16)
        try:
            yield
        finally:
            np.setbufsize(8192)


@contextmanager
def seeded() -> Iterator[None]:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    yield


@contextmanager
def collecting() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


@contextmanager
def coarse_decimals() -> Iterator[None]:
    with decimal.localcontext(prec=1, rounding=decimal.ROUND_UP):
        yield


@contextmanager
def foreign_locale() -> Iterator[None]:
    before = locale.setlocale(locale.LC_ALL)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"):
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            break
    yield
    locale.setlocale(locale.LC_ALL, before)


def default_dtype(dtype: torch.dtype) -> State:
    return lambda: put(torch.set_default_dtype, dtype, torch.float32)


def rounding(mode: int) -> State:
    return lambda: put(C.fesetround, mode, 0)


#: Everything that a caller, or a library in the caller's process, may have set.
STATES: dict[str, State] = {
    "nothing": nullcontext,
    "default dtype float64": default_dtype(torch.float64),
    "default dtype bfloat16": default_dtype(torch.bfloat16),
    "default dtype float16": default_dtype(torch.float16),
    "default device": lambda: put(torch.set_default_device, "meta", None),
    "device context": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "anomaly detection": anomalies,
    "deterministic algorithms": lambda: put(torch.use_deterministic_algorithms, True, False),
    "flushed denormals": lambda: put(torch.set_flush_denormal, True, False),
    "matmul precision": lambda: put(torch.set_float32_matmul_precision, "medium", "highest"),
    "without mkldnn": lambda: put(torch._C._set_mkldnn_enabled, False, True),
    "three torch threads": lambda: put(torch.set_num_threads, 3, 2),
    "function mode": WrongFunctions,
    "dispatch mode": WrongDispatch,
    "rounding up": rounding(UPWARD),
    "rounding down": rounding(DOWNWARD),
    "rounding to zero": rounding(TO_ZERO),
    "numpy raises": strict_numpy,
    "warnings are errors": strict_warnings,
    "seeds": seeded,
    "garbage at once": collecting,
    "decimals": coarse_decimals,
    "locale": foreign_locale,
    "little recursion": lambda: put(sys.setrecursionlimit, 400, 1000),
    "quick switches": lambda: put(sys.setswitchinterval, 1e-5, 0.005),
}
#: Those that belong to the process; another thread may set them during a step.
SHARED = tuple(
    name
    for name in STATES
    if name.startswith(("default", "deterministic", "matmul", "without", "three", "warn", "garb"))
    or name in ("flushed denormals", "rounding up", "numpy raises", "locale", "quick switches")
)

PROMPTS = ["abcabcabc"]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=6, logprobs=3, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=6, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=7, max_tokens=6, ignore_eos=True),
    SamplingParams(
        temperature=1.1,
        seed=8,
        top_p=0.8,
        min_p=0.01,
        max_tokens=6,
        logprobs=2,
        repetition_penalty=1.2,
        logit_bias={4: 1.7},
        ignore_eos=True,
    ),
]
DSPARK = {"markov_rank": 8, "enable_confidence_head": True, "confidence_head_with_markov": True}
DRAFTERS = ("none", "ngram", "dspark", "mtp")


def write_checkpoints(folder: Path) -> None:
    """A target in bfloat16 and two drafters for it."""
    model: DenseModel = toys.make_target()
    c, noise = model.config, torch.Generator().manual_seed(5)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "num_hidden_layers": c.num_layers,
        "vocab_size": c.vocab_size,
        "rms_norm_eps": c.rms_eps,
        "rope_theta": 10000.0,
        "max_position_embeddings": 128,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "eos_token_id": 0,
    }
    tensors = {
        name: torch.randn(shape, generator=noise) * (shape[-1] ** -0.5 if shape[1:] else 1.0)
        for name, shape in tensor_shapes(c).items()
    }
    target = toys.write_folder(folder / "target", config, tensors)
    save_file({n: t.bfloat16() for n, t in tensors.items()}, target / "model.safetensors")
    tiny_tokenizer(c.vocab_size)._backend.save(str(target / "tokenizer.json"))
    block = toys.zlab_config("DSparkDraftModel", **DSPARK)
    toys.write_folder(folder / "dspark", block, toys.block_tensors(block))
    head = toys.mtp_config()
    toys.write_folder(folder / "mtp", head, toys.mtp_tensors(head))


def load(folder: Path, kernels: str, drafter: str, verification: str = "coupled") -> LLM:
    path = folder / drafter
    return LLM(
        str(folder / "target"),
        drafter=str(path) if path.is_dir() else drafter,
        kernels=kernels,
        threads=2,
        draft_length=None if drafter == "none" else 3,
        max_num_seqs=len(PARAMS),
        verification=verification,
    )


def answers(llm: LLM) -> list[tuple[object, ...]]:
    """All that a user can see of every prompt under every kind of parameters, to the bit."""
    prompts = [prompt for prompt in PROMPTS for _ in PARAMS]
    outputs = llm.generate(prompts, PARAMS * len(PROMPTS))
    assert sum(o.metrics.speculation.faults for o in outputs) == 0
    return [
        (c.token_ids, c.text, c.finish_reason, repr(c.logprobs)) for o in outputs for c in o.outputs
    ]


def callers() -> dict[str, object]:
    """The state that a caller must find again."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "torch threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "numpy": (np.geterr(), np.getbufsize()),
        "rounding": C.fegetround(),
        "denormals": sys.float_info.min * 0.5 > 0.0,
        "warnings": list(warnings.filters),
        "decimal": repr(decimal.getcontext()),
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion": sys.getrecursionlimit(),
        "random": random.getstate(),
        "numpy random": repr(np.random.get_state()),
        "torch random": torch.get_rng_state().tolist() if not _modes() else None,
    }


def _modes() -> bool:
    return torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack() > 0


class Walk:
    """One kernel path under every state."""

    def __init__(self, folder: Path, kernels: str) -> None:
        self.folder, self.kernels = folder, kernels
        self.loaded = {drafter: load(folder, kernels, drafter) for drafter in DRAFTERS}
        self.right = {drafter: answers(llm) for drafter, llm in self.loaded.items()}
        self.faults: list[str] = []

    def compare(self, llm: LLM, drafter: str, where: str) -> None:
        if answers(llm) != self.right[drafter]:
            self.faults.append(f"{where}, {drafter}: another answer")

    def returned(self, before: dict[str, object], where: str) -> None:
        after = callers()
        changed = [name for name, value in before.items() if after[name] != value]
        self.faults += [f"{where}: the caller's {name} changed" for name in changed]

    def under(self, name: str, drafter: str) -> None:
        """Load and serve with a state set before and after loading."""
        with STATES[name]():
            before = callers()
            llm = load(self.folder, self.kernels, drafter)
            self.returned(before, f"{name}, loading")
            self.compare(llm, drafter, f"{name}, loading and serving")
            self.compare(self.loaded[drafter], drafter, f"{name}, serving")
            self.returned(before, f"{name}, serving")
        self.compare(llm, drafter, f"{name}, loading alone")

    def beside(self, name: str, drafter: str) -> None:
        """Serve while another thread sets and unsets a state."""
        begun, stop = threading.Event(), threading.Event()

        def toggle() -> None:
            while not stop.is_set():
                with STATES[name]():
                    begun.set()
                    stop.wait(0.0005)
                stop.wait(0.0002)

        thread = threading.Thread(target=toggle)
        thread.start()
        begun.wait()
        try:
            self.compare(self.loaded[drafter], drafter, f"{name}, in another thread")
            llm = load(self.folder, self.kernels, drafter)
            self.compare(llm, drafter, f"{name}, in another thread from the beginning")
        finally:
            stop.set()
            thread.join()

    def all(self) -> None:
        plain, *drafted = (self.right[drafter] for drafter in DRAFTERS)
        self.faults += ["drafting: another answer"] * sum(other != plain for other in drafted)
        for place, name in enumerate(STATES):
            self.under(name, DRAFTERS[place % 2 + 2])
        for place, name in enumerate(SHARED):
            self.beside(name, DRAFTERS[place % 2 + 2])


def digest(folder: Path, kernels: str) -> str:
    """A hash of the undisturbed answers, for processes that begin in different ways."""
    shown = [answers(load(folder, kernels, drafter)) for drafter in DRAFTERS]
    shown.append(answers(load(folder, kernels, "dspark", "rejection")))
    # A product wide enough for libraries to share it out among threads.
    with isolated():
        table, noise = select(path=kernels), torch.Generator().manual_seed(6)
        weight = table.prepare([raw_float("wide", torch.randn(4096, 576, generator=noise))])
        product = table.linear(torch.randn(9, 576, generator=noise), weight)
    return hashlib.sha256(repr(shown).encode() + product.numpy().tobytes()).hexdigest()


def main(folder: Path, kernels: str, walk: bool) -> None:
    torch.set_num_threads(2)
    if not walk:
        print(json.dumps(digest(folder, kernels)))  # noqa: T201
        return
    walker = Walk(folder, kernels)
    walker.all()
    print(json.dumps(walker.faults))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], walk=sys.argv[3] == "walk")
