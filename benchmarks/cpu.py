"""Speed of the CPU kernels on SmolLM2, against llama.cpp, transformers and the memory's limit.

Run on an idle machine: ``python benchmarks/cpu.py [--json FILE] [--llama-python PYTHON]``. Engines
take turns within one run, every figure is a median, and ratios compare neighbours in time. Nothing
is installed; a peer that is missing is named, and its rows stay empty.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outrider.kernels.rows import Rows

PROMPT: Final = 64
TOKENS: Final = 64
LLAMA_VERSION: Final = "0.3.36"
COPY_MB: Final = 256


@dataclass
class Line:
    """One line of the table: a figure, its bar and goal, and what the figure was made of."""

    what: str
    value: float | None
    unit: str
    bar: float
    goal: float
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
    import llama_cpp

    if llama_cpp.__version__ != LLAMA_VERSION:
        print(json.dumps({"note": f"version {llama_cpp.__version__}"}), file=sys.stderr)
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

    answer({"decode": decode, "prefill": prefill})


def serve_transformers(path: str, threads: int, dtype: str) -> None:
    """Answer timing commands about transformers with dequantised weights."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(
        str(Path(path).parent), gguf_file=Path(path).name, dtype=getattr(torch, dtype)
    ).eval()

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

    answer({"decode": decode})


def answer(commands: dict[str, Callable[[], float]]) -> None:
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

    def ask(self, what: str) -> float | None:
        """Seconds, or None without the peer."""
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
        return float(json.loads(line))

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

    def prefill(self) -> float:
        """Seconds of a 1,024-token prompt's pass, with its first token."""
        start = time.perf_counter()
        self.step(0, tokens(1024), last_only=True)
        return time.perf_counter() - start

    def weight_bytes(self) -> int:
        """Bytes that one decoding pass reads."""
        return int(self.model.weight_nbytes)


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


def memory_bandwidth(threads: int) -> float:
    """Bytes a second that all threads together read from a buffer larger than the weights."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    parts = np.array_split(np.ones(COPY_MB << 17, dtype=np.int64), threads)
    with ThreadPoolExecutor(threads) as pool:

        def read() -> None:
            list(pool.map(np.max, parts))

        return (COPY_MB << 20) / median_seconds(read, 9)


# -- the table ------------------------------------------------------------------------------------


def ratio(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Median of a / b over the turns in which both were measured."""
    pairs = [x / y for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return statistics.median(pairs) if pairs else None


def per_second(seconds: Sequence[float | None], count: int = 1) -> str:
    """Median speed, for a line's detail."""
    known = [count / s for s in seconds if s is not None]
    return f"{statistics.median(known):.0f}" if known else "-"


def peer_lines(ours: Ours, options: argparse.Namespace, path: str) -> list[Line]:
    """Lines that compare with other engines, turn by turn."""
    here, llama_s, hf_s = [], [], []
    ours_fill, llama_fill = [], []
    llama_args = ("--serve-llama", path, "--threads", str(options.threads))
    with peer(options.llama_python, *llama_args) as llama:
        for _ in range(options.turns):
            here.append(ours.decode())
            llama_s.append(llama.ask("decode"))
            ours_fill.append(ours.prefill())
            llama_fill.append(llama.ask("prefill"))
        if llama.missing:
            print(f"llama-cpp-python {LLAMA_VERSION} is missing: {llama.missing}", file=sys.stderr)
    beside = []
    for dtype in ("bfloat16", "float32"):
        hf_args = (
            "--serve-transformers",
            path,
            "--dtype",
            dtype,
            "--threads",
            str(options.threads),
        )
        with peer(sys.executable, *hf_args) as hf:
            times: list[float | None] = []
            again: list[float | None] = []
            for _ in range(options.turns):
                again.append(ours.decode())
                times.append(hf.ask("decode"))
            if hf.missing:
                print(f"transformers ({dtype}) is missing: {hf.missing}", file=sys.stderr)
        hf_s.append(times)
        beside.append(ratio(times, again))
    known = [(r, t) for r, t in zip(beside, hf_s, strict=True) if r is not None]
    best, best_times = min(known, key=lambda pair: pair[0]) if known else (None, [None])
    speed = per_second(here)
    return [
        Line("decode over llama.cpp", ratio(llama_s, here), "x", 2.0, 3.0, True,
             f"{speed} against {per_second(llama_s)} tokens/s"),
        Line("decode over transformers", best, "x", 8.0, 12.0, True,
             f"{speed} against {per_second(best_times)} tokens/s"),
        Line("prefill of 1,024 over llama.cpp", ratio(llama_fill, ours_fill), "x", 3.0, 6.0, True,
             f"{per_second(ours_fill, 1024)} against {per_second(llama_fill, 1024)} tokens/s"),
    ]  # fmt: skip


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

    return [
        line("8-row pass over 1-row pass", (8, 64), 1.6, 1.25),
        line("4-row pass over 1-row pass", (4, 64), 1.3, 1.1),
        line("decode at 4,096 over at 64", (1, 4096), 1.5, 1.2),
    ]


def limit_line(ours: Ours, threads: int) -> Line:
    """The pass against the time that its weights take to arrive from memory."""
    bandwidth = memory_bandwidth(threads)
    floor = ours.weight_bytes() / bandwidth
    taken = median_seconds(lambda: ours.step(PROMPT, tokens(1)), 31)
    detail = (
        f"{taken * 1e3:.2f} ms; {ours.weight_bytes() / 1e6:.0f} MB at {bandwidth / 1e9:.0f} GB/s "
        f"take {floor * 1e3:.2f} ms"
    )
    return Line("1-row pass over its memory time", taken / floor, "x", 2.0, 1.2, False, detail)


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
    sign = 1 if line.higher_is_better else -1
    if sign * line.value >= sign * line.goal:
        return "goal"
    return "bar" if sign * line.value >= sign * line.bar else "MISSED"


def show(lines: list[Line]) -> None:
    """Print the table."""
    print(f"{'what':34} {'value':>9} {'bar':>7} {'goal':>7}  {'':12}  made of")
    for line in lines:
        value = "-" if line.value is None else f"{line.value:.2f} {line.unit}"
        print(
            f"{line.what:34} {value:>9} {line.bar:>7g} {line.goal:>7g}  {verdict(line):12}  "
            f"{line.detail}"
        )


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
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    options = parse()
    if options.serve_llama:
        return serve_llama(options.serve_llama, options.threads)
    if options.serve_transformers:
        return serve_transformers(options.serve_transformers, options.threads, options.dtype)
    if options.fresh:
        return print(json.dumps(fresh_process(options.threads)))
    from outrider.loaders.smollm2 import smollm2_path

    lines = fresh_lines(options.threads, 3)
    ours = Ours(options.threads, options.kernels)
    busy = os.getloadavg()[0]
    print(f"{ours.llm.kernels_name}, {options.threads} threads, load {busy:.2f} at start\n")
    lines = [
        *peer_lines(ours, options, str(smollm2_path())),
        *pass_lines(ours, options.turns),
        *lines,
        limit_line(ours, options.threads),
    ]
    show(lines)
    if options.json:
        rows = [asdict(line) | {"verdict": verdict(line)} for line in lines]
        report = {"kernels": ours.llm.kernels_name, "threads": options.threads, "lines": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
