"""Loss and acceptance of a training run as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outrider.train.fitting.history import LogEntry


def plot_history(log: Sequence[LogEntry], path: Path, title: str) -> None:
    """Write a PNG: losses above, acceptance on held-out conversations below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7), layout="constrained")
    FigureCanvasAgg(figure)
    losses, acceptance = figure.subplots(2, 1, sharex=True)
    steps = [entry.step for entry in log]
    losses.plot(steps, [entry.ce for entry in log], label="cross-entropy")
    mixed = [entry for entry in log if entry.tv > 0]
    losses.plot([e.step for e in mixed], [e.tv for e in mixed], label="total variation")
    losses.set_ylabel("loss of a batch")
    losses.set_title(title)
    losses.legend()
    judged = [(entry.step, entry.tau, entry.positions) for entry in log if entry.tau is not None]
    taus = [tau for _, tau, _ in judged]
    acceptance.plot([step for step, _, _ in judged], taus, "k.-", label="tokens a round")
    for k in range(max((len(p) for _, _, p in judged), default=0)):
        shares = [(step, p[k]) for step, _, p in judged if k < len(p)]
        acceptance.plot(*zip(*shares, strict=True), label=f"draft {k + 1} kept")
    acceptance.set_ylabel("held-out, greedy, by rounds")
    acceptance.set_xlabel("step")
    acceptance.legend(ncols=2, fontsize="small")
    figure.savefig(path, dpi=110)
