"""Figures of one run: pure functions from the content of result.json to a matplotlib figure.

A function returns None where the run has no data for it (no expert usage without a pool).
"""

import io
import math
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from hashprompt.report import ResultData, drift_by_task
from hashprompt.texts import visible

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKERS = "osD^vP"
HEAT = "viridis"  # even steps in lightness, also without colour vision

_INK, _PAPER = "#e8e8e8", "#1c1f24"
LIGHT: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11.5,
    "axes.grid": True,
    "grid.alpha": 0.25,
}
DARK = LIGHT | {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), _PAPER),
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK
    ),
}


def new_axes(title: str, xlabel: str, ylabel: str) -> Axes:
    """Empty axes in a figure of their own, outside pyplot's global state."""
    axes = Figure(figsize=(6.4, 4.2), layout="constrained").subplots()
    axes.set_title(title, loc="left", weight="bold")
    axes.set(xlabel=xlabel, ylabel=ylabel, axisbelow=True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def legend_below(axes: Axes, columns: int = 3) -> None:
    figure_of(axes).legend(loc="outside lower center", ncols=columns, frameon=False)


def figure_of(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def count_from_one(axis: Axis, count: int) -> None:
    """Label positions 0, 1, … as 1…count; beyond 20 only every fifth or so."""
    step = 1 if count <= 20 else 5 if count <= 60 else 10
    numbers = range(1, count + 1) if step == 1 else [1, *range(step, count + 1, step)]
    axis.set_ticks([n - 1 for n in numbers], [str(n) for n in numbers])


def literal(name: object) -> str:
    """A name as a text of a figure: nothing hidden, and `$` is no formula."""
    return visible(name).replace("$", r"\$")


def accuracy_matrix(result: ResultData) -> Figure | None:
    """Accuracy on every task (row) after each task learned (column)."""
    matrix = np.array(result["accuracy"], dtype=float)  # (T, T), null becomes nan
    axes = new_axes("Accuracy on each task, in %", "after learning task", "on task")
    low = _round_down(float(np.nanmin(matrix)))
    _heat_map(axes, matrix, low, 100.0)
    if len(matrix) <= 20:
        digits, size = (1, 8.5) if len(matrix) <= 10 else (0, 7)
        for (row, column), value in np.ndenumerate(matrix):
            if not math.isnan(value):
                dark_cell = value - low < 0.55 * (100 - low)
                axes.text(
                    column,
                    row,
                    f"{value:.{digits}f}",
                    ha="center",
                    va="center",
                    size=size,
                    color="white" if dark_cell else "black",
                )
    return figure_of(axes)


def accuracy_curves(result: ResultData) -> Figure | None:
    """Average, new-class and task-inference accuracy after each task."""
    after = result["after_task"]
    if len(after) < 2:
        return None
    tasks = [entry["task"] for entry in after]
    axes = new_axes("Accuracy while tasks arrive", "after learning task", "accuracy (%)")
    series = {
        "average": "average of all tasks so far",
        "new_classes": "new classes only",
        "task_inference": "task inferred correctly",
    }
    lowest = 100.0
    for (key, label), colour, marker in zip(series.items(), PALETTE, MARKERS, strict=False):
        values = np.array([entry.get(key) for entry in after], dtype=float)
        if not np.isnan(values).all():
            axes.plot(tasks, values, color=colour, marker=marker, ms=5, lw=1.8, label=label)
            lowest = min(lowest, float(np.nanmin(values)))
    axes.set_ylim(_round_down(lowest), 102)
    count_from_one(axes.xaxis, max(tasks) + 1)
    legend_below(axes)
    return figure_of(axes)


def usage_per_task(result: ResultData) -> Figure | None:
    """Share of each expert in the activations of each task (Figure 3 b/c of the paper)."""
    usage = result.get("usage")
    if not usage or len(usage[0]) == 1:  # nothing was chosen between
        return None
    return figure_of(usage_map(usage, "task"))


def usage_map(usage: list[list[int]], row: str) -> Axes:
    """Share of each expert (column) in the activations counted in each row.

    Args:
        usage: (T, N) activations.
        row: what a row stands for, `task` or `learn`.
    """
    counts = np.array(usage, dtype=float)
    axes = new_axes(f"Use of the experts by each {row}", "expert", f"while learning {row}")
    shares = 100 * counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    _heat_map(axes, shares, 0.0, float(shares.max()), label=f"% of the {row}'s activations")
    return axes


def usage_overall(result: ResultData) -> Figure | None:
    """Share of each expert over all tasks (Figure 1c of the paper)."""
    usage = result.get("usage")
    if not usage or len(usage[0]) == 1:
        return None
    counts = np.array(usage, dtype=float).sum(axis=0)  # (N,)
    shares = counts / max(counts.sum(), 1)
    title = f"Use of the experts overall (normalised entropy {normalised_entropy(shares):.2f})"
    axes = new_axes(title, "expert", "% of all activations")
    axes.bar(range(len(shares)), 100 * shares, color=PALETTE[0])
    axes.axhline(100 / len(shares), color=PALETTE[1], ls="--", lw=1.5, label="even use")
    axes.grid(visible=False, axis="x")
    count_from_one(axes.xaxis, len(shares))
    axes.legend(frameon=False)
    return figure_of(axes)


def normalised_entropy(shares: np.ndarray) -> float:
    """Entropy of the shares divided by its maximum: 1 is even use, 0 a single expert."""
    used = shares[shares > 0]
    return float(-(used * np.log(used)).sum() / math.log(len(shares))) if len(shares) > 1 else 1.0


def routing_entropy(result: ResultData) -> Figure | None:
    """Mean entropy of the routing weights of an image, per task."""
    entries = [
        entry
        for entry in result.get("diagnostics") or []
        if entry.get("routing_entropy") is not None
    ]
    if not entries:
        return None
    top_k = result["config"].get("options", {}).get("top_k", 2)
    if top_k == 1:  # of one weight there is no entropy
        return None
    tasks = [entry["task"] for entry in entries]
    values = [entry["routing_entropy"] for entry in entries]
    axes = new_axes("Entropy of the routing weights", "while learning task", "H(α) in nats")
    axes.axhline(
        math.log(top_k),
        color=PALETTE[1],
        ls="--",
        lw=1.5,
        label=literal(f"upper bound ln {top_k} (equal weights)"),
    )
    axes.plot(tasks, values, color=PALETTE[0], marker="o", ms=5, lw=1.8, label="mean over images")
    axes.set_ylim(0, 1.1 * max(math.log(top_k), *values))
    count_from_one(axes.xaxis, max(tasks) + 1)
    legend_below(axes)
    return figure_of(axes)


ROUTING = {
    "favourite_share": "images that take the favourite",
    "usage_entropy": "evenness of use",
    "routing_varies": "what varies between images",
    "routing_by_class": "… of it between classes",
}


def routing(result: ResultData) -> Figure | None:
    """How much of the images the routers see, where there is something to route."""
    entries = [e for e in result.get("diagnostics") or [] if e.get("routing_varies") is not None]
    if not entries:
        return None
    axes = new_axes("What the routers see of the images", "after task", "share")
    tasks = [entry["task"] for entry in entries]
    for number, (name, label) in enumerate(ROUTING.items()):
        values = [entry.get(name) for entry in entries]
        colour, marker = PALETTE[number], MARKERS[number]
        axes.plot(tasks, values, color=colour, marker=marker, ms=5, lw=1.8, label=label)
    axes.set_ylim(-0.03, 1.03)
    count_from_one(axes.xaxis, max(tasks) + 1)
    legend_below(axes, columns=2)
    return figure_of(axes)


def drift(result: ResultData) -> Figure | None:
    """Distance of stored means of old classes from the truth, where it was measured."""
    found = drift_by_task(result)
    if not found:
        return None
    axes = new_axes("Stored means of old classes", "after task", "distance (class spreads)")
    axes.plot(list(found), list(found.values()), color=PALETTE[0], marker="o", ms=5, lw=1.8)
    axes.set_ylim(0, 1.1 * max(*found.values(), 0.1))
    count_from_one(axes.xaxis, max(found) + 1)
    return figure_of(axes)


def parameters(result: ResultData) -> Figure | None:
    """Numbers stored after the last task, by kind."""
    counts = {name: n for name, n in (result.get("parameters") or {}).items() if n}
    if not counts:
        return None
    axes = new_axes("Stored numbers after the last task", "count (log scale)", "")
    bars = axes.barh([*map(literal, counts)], [*counts.values()], color=PALETTE[0])
    axes.bar_label(bars, [f"{n:,}" for n in counts.values()], padding=4)
    axes.set_xscale("log")
    axes.set_xlim(min(counts.values()) / 10, max(counts.values()) * 100)  # room for the labels
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    return figure_of(axes)


def timings(result: ResultData) -> Figure | None:
    """Seconds of each task, by phase."""
    entries = result.get("timings") or []
    if not entries:
        return None
    seconds: dict[str, np.ndarray] = {}
    tasks = max(entry["task"] for entry in entries) + 1
    for entry in entries:
        seconds.setdefault(entry["phase"], np.zeros(tasks))[entry["task"]] += entry["seconds"]
    axes = new_axes("Time", "task", "seconds")
    bottom = np.zeros(tasks)
    for number, (phase, values) in enumerate(seconds.items()):
        colour = PALETTE[number % len(PALETTE)]
        axes.bar(range(tasks), values, bottom=bottom, color=colour, label=literal(phase))
        bottom += values
    axes.grid(visible=False, axis="x")
    count_from_one(axes.xaxis, tasks)
    legend_below(axes, columns=5)
    return figure_of(axes)


FIGURES: dict[str, Callable[[ResultData], Figure | None]] = {
    "accuracy_matrix": accuracy_matrix,
    "accuracy_curves": accuracy_curves,
    "usage_per_task": usage_per_task,
    "routing": routing,
    "usage_overall": usage_overall,
    "routing_entropy": routing_entropy,
    "drift": drift,
    "parameters": parameters,
    "timings": timings,
}


def render(draw: Callable[[], Figure | None], dark: bool = False) -> bytes | None:
    """Draw a figure on light or dark paper; the bytes of a PNG, or None if there is no data."""
    with mpl.rc_context(DARK if dark else LIGHT):
        figure = draw()
        if figure is None:
            return None
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        return buffer.getvalue()


def _round_down(percent: float) -> float:
    """The ten below a percentage, as the lower end of a scale."""
    return max(0.0, 10.0 * math.ceil(percent / 10 - 1))


def _heat_map(axes: Axes, values: np.ndarray, low: float, high: float, label: str = "") -> None:
    image = axes.imshow(values, cmap=HEAT, vmin=low, vmax=high, aspect="auto")
    figure_of(axes).colorbar(image, ax=axes, label=label)
    axes.grid(visible=False)
    count_from_one(axes.xaxis, values.shape[1])
    count_from_one(axes.yaxis, values.shape[0])
