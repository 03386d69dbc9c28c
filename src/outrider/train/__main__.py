"""``python -m outrider.train CONFIG.json [--stop-after SECONDS]``: run a training configuration."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from outrider.train.config import load_config
from outrider.train.run import train


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
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m outrider.train", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--stop-after", type=float, default=0.0, metavar="SECONDS")
    arguments = parser.parse_args()
    report = train(load_config(arguments.config), LineProgress(), arguments.stop_after)
    sys.stdout.write(report.to_json())
    sys.stdout.write("\n".join(report.evaluation.lines()) + "\n")


if __name__ == "__main__":
    main()
