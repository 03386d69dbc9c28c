"""The figure of ``outrider bench``: speedups, and where drafts were accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outrider.cli.bench.measure import PLAIN, BenchRow, BenchTotal
from outrider.cli.table import short_names
from outrider.types.errors import RequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: File endings that can be written.
KINDS: Final = (".png", ".svg", ".pdf")
#: Colours that people with any kind of colour vision can tell apart.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
GREY: Final = "#555555"
#: Fewest drafted tokens that make a share worth drawing, and the last position drawn.
LEAST_DRAFTED: Final = 20
LAST_POSITION: Final = 16
#: Longest name in the legend.
NAME_CHARS: Final = 28

#: Drafter and concurrency.
Series = tuple[str, int]


def check_plot(path: Path) -> None:
    """Refuse a figure that could not be written, before anything is measured.

    Raises:
        RequestError: matplotlib is missing, there is no such folder, or the ending is unknown.
    """
    if path.suffix.lower() not in KINDS:
        raise RequestError("--plot", f"{path}: must end in {', '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise RequestError("--plot", f"{path}: its folder does not exist")
    try:
        import_module("matplotlib")
    except ImportError:
        raise RequestError("--plot", "needs matplotlib; install it or leave --plot out") from None


def plot(rows: Sequence[BenchRow], totals: Sequence[BenchTotal], path: Path, title: str) -> None:
    """Draw the speedup by category on the left, acceptance by position on the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drafted = {(t.drafter, t.concurrency): t for t in totals if t.drafter != PLAIN}
    names = _names(list(drafted))
    places = list(dict.fromkeys(row.category for row in rows))
    bars = (len(places) + 1) * len(drafted)
    figure = Figure(figsize=(9, max(4.0, 1.6 + 0.2 * bars)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_speedups(left, rows, drafted, places)
    _draw_acceptance(right, drafted)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10, color=GREY)
    handles, _ = right.get_legend_handles_labels()
    labels = [names[series] for series in drafted]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=200)


def _names(series: Sequence[Series]) -> dict[Series, str]:
    """What the legend calls every series; the concurrency is named only if it varies."""
    several = len({concurrency for _, concurrency in series}) > 1
    short_by_name = short_names(drafter for drafter, _ in series)
    names = {}
    for drafter, concurrency in series:
        name = short_by_name[drafter]
        short = name if len(name) <= NAME_CHARS else f"…{name[1 - NAME_CHARS :]}"
        names[drafter, concurrency] = f"{short}, {concurrency} at a time" if several else short
    return names


def _draw_speedups(
    axes: Axes,
    rows: Sequence[BenchRow],
    totals: Mapping[Series, BenchTotal],
    categories: Sequence[str],
) -> None:
    """One group of bars per category, the geometric mean below a gap, a line at plain speed."""
    speedups = {(row.drafter, row.concurrency, row.category): row.speedup for row in rows}
    heights = [float(place) for place in range(len(categories))] + [len(categories) + 0.3]
    width = 0.8 / len(totals)
    for index, (series, total) in enumerate(totals.items()):
        values = [speedups[(*series, category)] for category in categories] + [total.speedup]
        offset = (index - (len(totals) - 1) / 2) * width
        bars = axes.barh(
            [height + offset for height in heights], values, width, color=_colour(index)
        )
        # A label may lie across the line at 1.0: it must stay readable.
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=9, color=GREY, bbox=behind)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(heights, [*categories, "geometric mean"])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("tokens/s, relative to plain decoding (1.0)")
    axes.set_title("Speedup by kind of prompt", loc="left", fontsize=11, fontweight="bold")


def _draw_acceptance(axes: Axes, totals: Mapping[Series, BenchTotal]) -> None:
    """One line per series; positions that were hardly ever drafted say nothing and are left out."""
    from matplotlib.ticker import MaxNLocator

    for index, total in enumerate(totals.values()):
        shares = shown_positions(total)
        places = range(1, len(shares) + 1)
        percent = [100 * share for share in shares]
        axes.plot(places, percent, "o-", color=_colour(index), markersize=4, label=total.drafter)
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, % of the tokens drafted there")
    axes.set_title("Acceptance by position", loc="left", fontsize=11, fontweight="bold")


def shown_positions(row: BenchRow) -> list[float]:
    """Acceptance at the leading positions that enough tokens were drafted at."""
    counted = zip(row.acceptance_per_position, row.drafted_per_position, strict=True)
    shares = [share for share, drafted in counted if drafted >= LEAST_DRAFTED]
    return shares[:LAST_POSITION]


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
