"""Runs a training configuration: ``python -m outrider.train CONFIG.json [options]``.

On several GPUs: ``python -m torch.distributed.run --nproc-per-node GPUS -m outrider.train ...``.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from outrider.train.command import faults_in_one_line
from outrider.train.config_file import load_config
from outrider.train.data.corpus import write_conversations
from outrider.train.fitting.distributed import join_peers
from outrider.train.ranges import check_ranges
from outrider.train.run import open_target, silent_line, train
from outrider.types.progress import silent


class LineProgress:
    """Prints a line when a stage begins, ends, or has been silent for a while."""

    def __init__(self, pause: float = 10.0) -> None:
        self._pause = pause
        self._began = time.monotonic()
        self._last = ("", 0.0)

    def __call__(self, label: str, done: int, total: int) -> None:
        """Print the state if it is news."""
        now = time.monotonic()
        if label == self._last[0] and now - self._last[1] < self._pause and done < total:
            return
        self._last = (label, now)
        sys.stdout.write(f"[{now - self._began:7.1f}] {label}: {done} of {total}\n")
        sys.stdout.flush()


def main() -> None:
    """Run the command line; a fault of the user is one line, with status 2."""
    with faults_in_one_line():
        _run()


def _run() -> None:
    """Parse the command line, then generate or train."""
    parser = argparse.ArgumentParser(prog="python -m outrider.train", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--model", help="instead of the configuration's")
    parser.add_argument("--out", help="folder of the checkpoint, instead of the configuration's")
    parser.add_argument("--work", help="folder of state and logs, instead of the configuration's")
    parser.add_argument("--data", help="folder of conversations, instead of the configuration's")
    parser.add_argument("--stop-after", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--generate", type=int, metavar="SEED", help="only write conversations")
    options = parser.parse_args()
    named = {key: getattr(options, key) for key in ("model", "out", "work", "data")}
    config = load_config(options.config)
    config = replace(config, **{key: value for key, value in named.items() if value})
    progress = LineProgress()
    if options.generate is not None:
        generation = replace(config.generate, seed=options.generate)
        config = replace(config, generate=generation)
        check_ranges(config)
        target, tokenizer = open_target(config, progress)
        folder = Path(config.data or config.work)
        path = write_conversations(target, tokenizer, generation, folder, progress)
        sys.stdout.write(f"{path}\n")
        return
    peers = join_peers()
    shown, tell = (progress, _tell) if peers.leads else (silent, silent_line)
    report = train(config, shown, options.stop_after, peers, tell)
    peers.leave()
    if not peers.leads:
        return
    sys.stdout.write(report.to_json())
    sys.stdout.write("\n".join(report.evaluation.lines()) + "\n")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
