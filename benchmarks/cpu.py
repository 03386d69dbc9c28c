"""Speed of the CPU kernels on SmolLM2, against llama.cpp, transformers and the memory's limit.

Run on an idle machine: ``python benchmarks/cpu.py [--json FILE] [--llama-python PYTHON]``. Engines
take turns within one run, every figure is a median, and ratios compare neighbours in time. Nothing
is installed; a peer that is missing is named, and its rows stay empty. Rows without a bar inform.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outrider.kernels.rows import Rows

PROMPT: Final = 64
TOKENS: Final = 64
LLAMA_VERSION: Final = "0.3.36"
READ_MB: Final = 256
HUGE_PAGE: Final = 2 << 20

#: A plain text and how many greedy tokens of its continuation a peer must share with this engine.
#: Activations are rounded differently, so that a near tie may fall the other way later on.
CHECK_TEXT: Final = "The capital of France is"
CHECK_TOKENS: Final = 16
CHECK_EQUAL: Final = 8


@dataclass
class Line:
    """One line of the table: a figure, its bar and goal if any, and what the figure was made of."""

    what: str
    value: float | None
    unit: str
    bar: float | None
    goal: float | None
    higher_is_better: bool
    detail: str


def median_seconds(function: Callable[[], object], repeats: int, warm: int = 2) -> float:
    """Median wall-clock seconds of a call."""
    times = []
    for _ in range(repeats + warm):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm:])


def tokens(count: int, salt: int = 0) -> list[int]:
    """Ordinary token ids that do not repeat soon."""
    return [(i * 7919 + salt * 104729) % 40000 + 100 for i in range(count)]


# -- peers, each in a process of its own ----------------------------------------------------------


def serve_llama(path: str, threads: int) -> None:
    """Answer timing commands about llama.cpp, line by line; runs under --llama-python."""
    import llama_cpp  # type: ignore[import-not-found,unused-ignore]

    model = llama_cpp.Llama(
        path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, n_batch=1024, verbose=False
    )

    def decode() -> float:
        model.reset()
        model.eval(tokens(PROMPT))
        token, times = model.sample(temp=0.0), []
        for _ in range(TOKENS):
            start = time.perf_counter()
            model.eval([token])
            token = model.sample(temp=0.0)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    def prefill() -> float:
        model.reset()
        start = time.perf_counter()
        model.eval(tokens(1024))
        return time.perf_counter() - start

    answer({"decode": decode, "prefill": prefill, "version": lambda: llama_cpp.__version__})


def serve_transformers(path: str, threads: int, dtype: str) -> None:
    """Answer timing commands about transformers with dequantised weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    from outrider.loaders.checkpoint import tensor_shapes
    from outrider.loaders.gguf import GgufCheckpoint

    torch.set_num_threads(threads)
    # Its own loader of GGUF files wants one more package, so the weights are read by ours.
    config = AutoConfig.from_pretrained(str(Path(path).parent), gguf_file=Path(path).name)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
    checkpoint = GgufCheckpoint(Path(path))
    shapes = tensor_shapes(checkpoint.config)
    weights = {name: checkpoint.tensor(name, shape).float() for name, shape in shapes.items()}
    odd = model.load_state_dict(weights, strict=False)
    assert not odd.unexpected_keys
    assert set(odd.missing_keys) <= {"lm_head.weight"}
    assert not odd.missing_keys or model.lm_head.weight is model.model.embed_tokens.weight

    @torch.inference_mode()
    def greedy() -> list[int]:
        cache, found = DynamicCache(), []
        ids = torch.tensor([checkpoint.tokenizer().encode(CHECK_TEXT, add_special=True)])
        for _ in range(CHECK_TOKENS):
            ids = model(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1:].argmax(-1)
            found.append(int(ids))
        return found

    @torch.inference_mode()
    def decode() -> float:
        cache, times = DynamicCache(), []
        ids = torch.tensor([tokens(PROMPT)])
        for _ in range(TOKENS // 4):
            start = time.perf_counter()
            logits = model(ids, past_key_values=cache, logits_to_keep=1).logits
            ids = logits[:, -1:].argmax(-1)
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    answer({"decode": decode, "greedy": greedy})


def serve_memory(threads: int) -> None:
    """Answer how many seconds the fastest way to read a large buffer takes.

    Each way reads all bytes of one buffer in huge pages, larger than the caches, with all threads.
    They run in turn, so that one which meets a slow moment of the machine does not count.
    """
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import torch

    torch.set_num_threads(threads)
    size = READ_MB << 20
    memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    words = whole[start : start + size].view(np.int64)
    words[:] = 1
    parts = np.array_split(words, threads)
    tensor = torch.from_numpy(words)
    pool = ThreadPoolExecutor(threads)
    ways: tuple[Callable[[], object], ...] = (
        lambda: list(pool.map(np.max, parts)),
        lambda: list(pool.map(np.bitwise_or.reduce, parts)),
        lambda: list(pool.map(lambda part: np.dot(part, part), floats)),
        tensor.amax,
        lambda: tensor.view(torch.float32).sum(),
        lambda: tensor.view(torch.int8).amax(),
    )
    floats = [part.view(np.float32) for part in parts]

    def read() -> float:
        return min(median_seconds(way, 3, 1) for way in ways)

    answer({"read": read})


def answer(commands: dict[str, Callable[[], object]]) -> None:
    """Say that the model is ready, then time what standard input asks for."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), flush=True)


class Peer:
    """A peer's process; ``missing`` says why there is none."""

    def __init__(self, python: str, arguments: list[str]) -> None:
        command = [python, __file__, *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().strip() == "ready"
        self.missing = "" if ready else self._fault()

    def _fault(self) -> str:
        _, errors = self.process.communicate()
        last = errors.strip().splitlines()[-1:] or [f"exit status {self.process.returncode}"]
        return last[0]

    def ask(self, what: str) -> Any:  # noqa: ANN401 - any JSON value
        """What the peer answers, seconds for a timing command; None without the peer."""
        if self.missing:
            return None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        time.sleep(0.2)  # its threads may spin for a while
        if not line:
            self.missing = self._fault()
            return None
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(30)


@contextmanager
def peer(python: str, *arguments: str) -> Iterator[Peer]:
    """A peer for the duration of a block."""
    made = Peer(python, list(arguments))
    try:
        yield made
    finally:
        made.close()


# -- this engine ----------------------------------------------------------------------------------


class Ours:
    """The loaded model, driven pass by pass, and through the public interface."""

    def __init__(self, threads: int, kernels: str | None) -> None:
        import torch

        from outrider import LLM

        torch.set_num_threads(1)
        self.torch = torch
        self.llm = LLM("smollm2", drafter="none", threads=threads, kernels=kernels)
        self.model = self.llm._target.model
        self.pages = list(range(140))
        self.store = self.model.allocate(len(self.pages))

    def rows(self, start: int, count: int) -> Rows:
        """Rows of one session."""
        from outrider.kernels.rows import RowGroup, Rows

        return Rows((RowGroup(start, count, self.pages),))

    def step(self, start: int, ids: list[int], last_only: bool = False) -> None:
        """One pass and the most likely token of its rows."""
        keep = self.torch.tensor([len(ids) - 1] if last_only else range(len(ids)))
        rows = self.rows(start, len(ids))
        out = self.model.forward(self.torch.tensor(ids), rows, self.store, keep)
        self.model.argmax(out.hidden)

    def decode(self) -> float:
        """Seconds of a greedy token through the public interface."""
        from outrider import SamplingParams

        params = SamplingParams(max_tokens=TOKENS + 1, temperature=0.0, ignore_eos=True)
        timings = self.llm.generate([tokens(PROMPT)], params)[0].metrics.timings
        return timings.decode_s / TOKENS

    def greedy(self) -> list[int]:
        """Tokens that continue the text of the check."""
        from outrider import SamplingParams

        params = SamplingParams(max_tokens=CHECK_TOKENS, temperature=0.0, ignore_eos=True)
        return list(self.llm.generate([CHECK_TEXT], params)[0].outputs[0].token_ids)

    def single(self) -> float:
        """Seconds of a 1-row pass at a short context."""
        return median_seconds(lambda: self.step(PROMPT, tokens(1)), 15)

    def prefill(self) -> float:
        """Seconds of a 1,024-token prompt's pass, with its first token."""
        start = time.perf_counter()
        self.step(0, tokens(1024), last_only=True)
        return time.perf_counter() - start

    def weight_bytes(self) -> int:
        """Bytes that one decoding pass reads."""
        return int(self.model.weight_nbytes)

    def pass_bytes(self, context: int) -> float:
        """Bytes that a 1-row pass reads, cached tokens included."""
        from outrider.kernels.rows import PAGE_TOKENS

        return self.weight_bytes() + context * self.store.page_nbytes / PAGE_TOKENS


def fresh_process(threads: int) -> dict[str, float]:
    """Load, fill 2,048 positions and report seconds and peak memory; its own process."""
    begun = time.perf_counter()
    from outrider import LLM, SamplingParams

    start = time.perf_counter()
    llm = LLM("smollm2", drafter="none", threads=threads, max_model_len=2048)
    llm.generate([tokens(16)], SamplingParams(max_tokens=1, temperature=0.0))
    first = time.perf_counter()
    llm.generate([tokens(2000)], SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"import_s": start - begun, "first_token_s": first - start, "peak_mb": peak}


def measure_fresh(threads: int, runs: int) -> dict[str, float]:
    """Medians over fresh processes."""
    results = []
    for _ in range(runs):
        command = [sys.executable, __file__, "--fresh", "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(r[key] for r in results) for key in results[0]}


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """A process that keeps one core busy."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()


# -- the table ------------------------------------------------------------------------------------


def ratio(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Median of a / b over the turns in which both were measured."""
    pairs = [x / y for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return statistics.median(pairs) if pairs else None


def per_second(seconds: Sequence[float | None], count: int = 1) -> str:
    """Median speed, for a line's detail."""
    known = [count / s for s in seconds if s is not None]
    return f"{statistics.median(known):.0f}" if known else "-"


def llama_lines(
    ours: Ours, options: argparse.Namespace, path: str
) -> tuple[list[Line], str | None]:
    """Lines that compare with llama.cpp, turn by turn, and its version."""
    here, llama_s, ours_fill, llama_fill = [], [], [], []
    args = ("--serve-llama", path, "--threads", str(options.threads))
    with peer(options.llama_python, *args) as llama:
        found = llama.ask("version")
        for _ in range(options.turns):
            here.append(ours.decode())
            llama_s.append(llama.ask("decode"))
            ours_fill.append(ours.prefill())
            llama_fill.append(llama.ask("prefill"))
        if llama.missing:
            print(f"llama-cpp-python {LLAMA_VERSION} is missing: {llama.missing}", file=sys.stderr)
    if found not in (None, LLAMA_VERSION):
        print(f"llama-cpp-python is {found}, the bars are for {LLAMA_VERSION}", file=sys.stderr)
    return [
        Line("decode over llama.cpp", ratio(llama_s, here), "x", 2.0, 3.0, True,
             f"{per_second(here)} against {per_second(llama_s)} tokens/s"),
        Line("prefill of 1,024 over llama.cpp", ratio(llama_fill, ours_fill), "x", 3.0, 6.0, True,
             f"{per_second(ours_fill, 1024)} against {per_second(llama_fill, 1024)} tokens/s"),
    ], found  # fmt: skip


def transformers_line(ours: Ours, options: argparse.Namespace, path: str) -> Line:
    """The comparison with transformers in whichever of two formats is faster."""
    results: list[tuple[float, str]] = []
    mine = ours.greedy()
    for dtype in ("bfloat16", "float32"):
        args = ("--serve-transformers", path, "--dtype", dtype, "--threads", str(options.threads))
        here: list[float | None] = []
        theirs: list[float | None] = []
        with peer(sys.executable, *args) as hf:
            greedy = hf.ask("greedy")
            for _ in range(options.turns):
                here.append(ours.decode())
                theirs.append(hf.ask("decode"))
            if hf.missing:
                print(f"transformers ({dtype}) is missing: {hf.missing}", file=sys.stderr)
                continue
        if greedy[:CHECK_EQUAL] != mine[:CHECK_EQUAL]:
            print(f"transformers ({dtype}) goes on with {greedy}, not {mine}", file=sys.stderr)
            continue
        beside = ratio(theirs, here)
        assert beside is not None
        speeds = f"{per_second(here)} against {per_second(theirs)} tokens/s in {dtype}"
        results.append((beside, speeds))
    value, detail = min(results) if results else (None, "-")
    return Line("decode over transformers", value, "x", 8.0, 12.0, True, detail)


def pass_lines(ours: Ours, turns: int) -> list[Line]:
    """Lines about passes of this engine alone."""
    for start in range(0, 4097, 1024):
        ours.step(start, tokens(1024 if start < 4096 else 64), last_only=True)
    cells = ((1, 64), (4, 64), (8, 64), (1, 4096))
    times: dict[tuple[int, int], list[float | None]] = {cell: [] for cell in cells}
    for _ in range(turns):
        for count, start in cells:
            ids = tokens(count, start)
            times[count, start].append(median_seconds(lambda: ours.step(start, ids), 15))  # noqa: B023
    one = times[1, 64]
    known = [t for t in one if t is not None]
    base = f"1 row {statistics.median(known) * 1e3:.2f} ms"

    def line(what: str, cell: tuple[int, int], bar: float, goal: float) -> Line:
        taken = statistics.median([t for t in times[cell] if t is not None]) * 1e3
        return Line(what, ratio(times[cell], one), "x", bar, goal, False, f"{taken:.2f} ms, {base}")

    far = line("decode at 4,096 over at 64", (1, 4096), 1.5, 1.2)
    near, grown = ours.pass_bytes(64), ours.pass_bytes(4096)
    far.detail += f"; reads {grown / near:.2f} times as many bytes, {grown / 1e6:.0f} MB"
    return [
        line("8-row pass over 1-row pass", (8, 64), 1.6, 1.25),
        line("4-row pass over 1-row pass", (4, 64), 1.3, 1.1),
        far,
    ]


def limit_line(ours: Ours, options: argparse.Namespace) -> Line:
    """The pass against the time that its weights take to arrive from memory, turn by turn."""
    passes: list[float] = []
    reads: list[float] = []
    with peer(sys.executable, "--serve-memory", "--threads", str(options.threads)) as memory:
        for _ in range(options.turns):
            passes.append(ours.single())
            reads.append(memory.ask("read") or 0.0)
    if memory.missing:
        print(f"the memory's speed is missing: {memory.missing}", file=sys.stderr)
        return Line("1-row pass over its memory time", None, "x", 2.0, 1.2, False, "-")
    share = ours.weight_bytes() / (READ_MB << 20)
    floors = [seconds * share for seconds in reads]
    bandwidth = (READ_MB << 20) / statistics.median(reads) / 1e9
    detail = (
        f"{statistics.median(passes) * 1e3:.2f} ms; {ours.weight_bytes() / 1e6:.0f} MB at "
        f"{bandwidth:.0f} GB/s take {statistics.median(floors) * 1e3:.2f} ms; fastest of 6 numpy "
        f"and torch reads of {READ_MB} MB in huge pages, {options.threads} threads"
    )
    return Line("1-row pass over its memory time", ratio(passes, floors), "x", 2.0, 1.2, False,
                detail)  # fmt: skip


def path_lines(ours: Ours, options: argparse.Namespace) -> list[Line]:
    """The other code paths that this machine has, against the one in use."""
    from outrider.kernels import _native

    lines = []
    for path in _native.paths():
        if ours.llm.kernels_name.endswith(path):
            continue
        other, theirs, here = Ours(options.threads, path), [], []
        for _ in range(options.turns):
            here.append(ours.single())
            theirs.append(other.single())
        detail = (
            f"{statistics.median(theirs) * 1e3:.2f} against {statistics.median(here) * 1e3:.2f} ms"
        )
        lines.append(
            Line(f"1-row pass on {path}", ratio(theirs, here), "x", None, None, False, detail)
        )
    return lines


def neighbour_line(ours: Ours, turns: int) -> Line:
    """Decoding while another process keeps a core busy, against decoding alone."""
    alone, beside = [], []
    for _ in range(turns):
        ours.decode()  # the number of threads follows the neighbours with a delay
        alone.append(ours.decode())
        with busy_neighbour():
            ours.decode()
            beside.append(ours.decode())
    detail = f"{per_second(beside)} against {per_second(alone)} tokens/s"
    what = "decode beside one busy process"
    return Line(what, ratio(beside, alone), "x", None, None, False, detail)


def fresh_lines(threads: int, runs: int) -> list[Line]:
    """Lines about a fresh process."""
    fresh = measure_fresh(threads, runs)
    return [
        Line("peak memory at 2,048 context", fresh["peak_mb"], "MB", 600, 400, False,
             "whole process"),
        Line("load to first token", fresh["first_token_s"], "s", 2.5, 1.0, False,
             f"imports take {fresh['import_s']:.2f} s more"),
    ]  # fmt: skip


def verdict(line: Line) -> str:
    """Where a line stands."""
    if line.value is None:
        return "not measured"
    if line.bar is None or line.goal is None:
        return "-"
    sign = 1 if line.higher_is_better else -1
    if sign * line.value >= sign * line.goal:
        return "goal"
    return "bar" if sign * line.value >= sign * line.bar else "MISSED"


def show(lines: list[Line]) -> None:
    """Print the table."""
    print(f"{'what':34} {'value':>9} {'bar':>7} {'goal':>7}  {'':12}  made of")
    for line in lines:
        value = "-" if line.value is None else f"{line.value:.2f} {line.unit}"
        bar, goal = ("-" if x is None else f"{x:g}" for x in (line.bar, line.goal))
        print(f"{line.what:34} {value:>9} {bar:>7} {goal:>7}  {verdict(line):12}  {line.detail}")


def installed(package: str) -> str | None:
    """Version of a package of this interpreter."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, object]:
    """The processor's name and how many of its cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": names[0] if names else name, "cores": len(os.sched_getaffinity(0))}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kernels", help="pin a code path: avx512vnni, avx2 or portable")
    parser.add_argument("--turns", type=int, default=5, help="turns of each engine")
    parser.add_argument(
        "--llama-python", default=sys.executable, help="an interpreter that has llama-cpp-python"
    )
    parser.add_argument("--serve-llama", help=argparse.SUPPRESS)
    parser.add_argument("--serve-transformers", help=argparse.SUPPRESS)
    parser.add_argument("--serve-memory", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def serve(options: argparse.Namespace) -> bool:
    """Be a process that another run of this script started, if so asked."""
    if options.serve_llama:
        serve_llama(options.serve_llama, options.threads)
    elif options.serve_transformers:
        serve_transformers(options.serve_transformers, options.threads, options.dtype)
    elif options.serve_memory:
        serve_memory(options.threads)
    elif options.fresh:
        print(json.dumps(fresh_process(options.threads)))
    else:
        return False
    return True


def main() -> None:
    """Measure, print and write."""
    options = parse()
    if serve(options):
        return
    from outrider.loaders.smollm2 import smollm2_path

    fresh = fresh_lines(options.threads, 3)
    ours = Ours(options.threads, options.kernels)
    busy = os.getloadavg()[0]
    print(f"{ours.llm.kernels_name}, {options.threads} threads, load {busy:.2f} at start\n")
    path = str(smollm2_path())
    llama, llama_version = llama_lines(ours, options, path)
    lines = [
        *llama,
        transformers_line(ours, options, path),
        *pass_lines(ours, options.turns),
        *fresh,
        limit_line(ours, options),
        *path_lines(ours, options),
        neighbour_line(ours, options.turns),
    ]
    show(lines)
    if options.json:
        packages = ("outrider", "torch", "numpy", "transformers")
        report = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": {
                "python": platform.python_version(),
                **{package: installed(package) for package in packages},
                "llama-cpp-python": llama_version,
            },
            "kernels": ours.llm.kernels_name,
            "threads": options.threads,
            "lines": [asdict(line) | {"verdict": verdict(line)} for line in lines],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
