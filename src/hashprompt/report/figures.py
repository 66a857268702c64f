"""Figures of one run, from the content of its result.json, and of a comparison of runs.

A function returns None if the run has no data for it (expert usage without a pool).
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from hashprompt.report import ResultData
from hashprompt.report.compare import Comparison
from hashprompt.report.measures import usage_entropy
from hashprompt.report.pages import PageFigure
from hashprompt.report.text_table import Stat
from hashprompt.texts import visible

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKERS = "osD^vP"

# Places of a name: offset from its point, alignment.
OFFSETS = {
    **{(6, 3): "left", (6, -9): "left", (-6, 3): "right", (-6, -9): "right"},
    **{(0, 8): "center", (0, -14): "center"},
}

Points = Mapping[Any, Sequence[float | None]]  # values of runs by position
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
    """Empty axes in a new figure, outside pyplot's global state."""
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


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line of a number."""
    dashes = ("-", "--", ":")[number // 6 % 3]
    return {"color": PALETTE[number % 6], "marker": MARKERS[number % 6], "ms": 5, "ls": dashes}


def plot_lines(axes: Axes, lines: Mapping[str, Points]) -> None:
    """Lines by label: the mean of the values at each position, and their deviation."""
    for number, (label, points) in enumerate(lines.items()):
        stats = {x: stat for x, values in points.items() if (stat := Stat.of(values))}
        means, spread = [s.mean for s in stats.values()], [s.std or 0.0 for s in stats.values()]
        if stats:
            style = line_style(number)
            error = spread if any(spread) else None
            axes.errorbar([*stats], means, error, label=literal(label), capsize=3, **style)


def count_from_one(axis: Axis, count: int) -> None:
    """Label positions 0, 1, … as 1…count; beyond 20 only every fifth or so."""
    step = 1 if count <= 20 else 5 if count <= 60 else 10
    numbers = range(1, count + 1) if step == 1 else [1, *range(step, count + 1, step)]
    axis.set_ticks([n - 1 for n in numbers], [str(n) for n in numbers])


def literal(name: object) -> str:
    """A name as text in a figure: no hidden characters, no formula between `$`."""
    return visible(name).replace("$", r"\$")


def accuracy_matrix(result: ResultData) -> Figure | None:
    """Accuracy on every task (row) after each task (column)."""
    matrix = np.array(result["accuracy"], dtype=float)  # (T, T), null becomes nan
    axes = new_axes("Accuracy on each task, in %", "after task", "on task")
    low = _round_down(float(np.nanmin(matrix)))
    _heat_map(axes, matrix, low, 100.0)
    if len(matrix) <= 20:
        digits, size = (1, 8.5) if len(matrix) <= 10 else (0, 7)
        text: dict[str, Any] = {"ha": "center", "va": "center", "size": size}
        for (row, column), value in np.ndenumerate(matrix):
            if not math.isnan(value):
                colour = "white" if value - low < 0.55 * (100 - low) else "black"
                axes.text(column, row, f"{value:.{digits}f}", color=colour, **text)
    return figure_of(axes)


def accuracy_curves(result: ResultData) -> Figure | None:
    """Average, new-class and task-inference accuracy after each task."""
    if len(result["after_task"]) < 2:
        return None
    series = {
        "average": "all classes so far",
        "new_classes": "new classes only",
        "task_inference": "task inference",
    }
    axes = _over_tasks("Accuracy over tasks", "accuracy (%)", result["after_task"], series)
    values = [entry.get(name) for entry in result["after_task"] for name in series]
    axes.set_ylim(_round_down(min(value for value in values if value is not None)), 102)
    return figure_of(axes)


def _over_tasks(
    title: str, ylabel: str, entries: list[dict[str, Any]], labels: Mapping[str, str]
) -> Axes:
    """Lines over tasks of some fields of the entries."""
    axes = new_axes(title, "after task", ylabel)
    lines = {
        label: {entry["task"]: [entry.get(name)] for entry in entries}
        for name, label in labels.items()
    }
    plot_lines(axes, lines)
    count_from_one(axes.xaxis, 1 + max(entry["task"] for entry in entries))
    if len(labels) > 1:
        legend_below(axes, columns=2)
    return axes


def usage_per_task(result: ResultData) -> Figure | None:
    """Share of each expert in the activations of each task (Figure 3 b/c of the paper)."""
    entropy = usage_entropy(result)
    if entropy is None:  # no pool, or a single expert
        return None
    axes = usage_map(result["usage"])
    axes.set_title(f"Use of the experts (entropy {entropy:.2f})", loc="left", weight="bold")
    return figure_of(axes)


def usage_map(usage: list[list[int]]) -> Axes:
    """Share of each expert (column) in the activations (T, N) of each task (row)."""
    counts = np.array(usage, dtype=float)
    axes = new_axes("Use of the experts by each task", "expert", "while learning task")
    shares = 100 * counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    _heat_map(axes, shares, 0.0, float(shares.max()), label="% of the task's activations")
    return axes


ROUTING = {
    "favourite_share": "images that use the most-used expert",
    "usage_entropy": "entropy of use",
    "routing_varies": "variance between images",
    "routing_by_class": "… of it between classes",
    "entropy_by_difficulty": "entropy and difficulty, correlation",
}


def routing(result: ResultData) -> Figure | None:
    """Dependence of the routing on the image."""
    entries = [e for e in result.get("diagnostics") or [] if e.get("routing_varies") is not None]
    if not entries:
        return None
    known = {name: text for name, text in ROUTING.items() if name in entries[0]}
    axes = _over_tasks("Routing", "share", entries, known)
    axes.set_ylim(min(-0.03, axes.get_ylim()[0]), 1.03)
    return figure_of(axes)


def drift(result: ResultData) -> Figure | None:
    """Distance of stored means of old classes from recomputed ones, if measured."""
    entries = [e for e in result.get("diagnostics") or [] if e.get("drift") is not None]
    if not entries:
        return None
    axes = _over_tasks("Drift of stored class means", "distance (σ)", entries, {"drift": "drift"})
    axes.set_ylim(bottom=0)
    return figure_of(axes)


def parameters(result: ResultData) -> Figure | None:
    """Stored values after the last task, by kind."""
    counts = {name: n for name, n in (result.get("parameters") or {}).items() if n}
    if not counts:
        return None
    axes = new_axes("Stored values after the last task", "count (log scale)", "")
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
    axes = new_axes("Time of each task", "task", "seconds")
    bottom = np.zeros(tasks)
    for number, (phase, values) in enumerate(seconds.items()):
        colour = PALETTE[number % len(PALETTE)]
        axes.bar(range(tasks), values, bottom=bottom, color=colour, label=literal(phase))
        bottom += values
    axes.grid(visible=False, axis="x")
    count_from_one(axes.xaxis, tasks)
    legend_below(axes, columns=5)
    return figure_of(axes)


DRAWN = (accuracy_matrix, accuracy_curves, usage_per_task, routing, drift, parameters, timings)
FIGURES: dict[str, Callable[[ResultData], Figure | None]] = {d.__name__: d for d in DRAWN}


def compare_figure(comparison: Comparison) -> Figure:
    """Average accuracy after each task, one line per row with deviations over seeds."""
    axes = new_axes("Average accuracy on all classes so far", "after task", "accuracy (%)")
    curves = {row.name: row.curve for row in comparison.rows}
    plot_lines(axes, curves)
    last = max((task for curve in curves.values() for task in curve), default=0)
    count_from_one(axes.xaxis, 1 + last)
    legend_below(axes, columns=1 if len(curves) <= 6 else 3)
    return figure_of(axes)


def cost_figure(comparison: Comparison) -> Figure:
    """Final accuracy against stored bytes (as Figure 1b of the paper).

    A value takes four bytes, an image its pixels. Methods that keep images have a hollow mark.
    """
    keeping = any(row.keeps_images for row in comparison.rows)
    title = "Accuracy and storage" + (" (hollow: keeps images)" if keeping else "")
    axes = new_axes(title, "MB stored next to the frozen ViT", "final average accuracy (%)")
    points = [
        (row.label, max(row.stored_bytes, 1) / 1e6, stat, bool(row.keeps_images))
        for row in comparison.rows
        if (stat := row.stat("FAA"))
    ]
    plot_points(axes, points)
    return figure_of(axes)


def plot_points(axes: Axes, points: Sequence[tuple[str, float, Stat, bool]]) -> None:
    """Accuracies against sizes with names: name, size, accuracy, whether the mark is hollow."""
    for number, (_, size, stat, is_hollow) in enumerate(points):
        style = line_style(number) | {"ls": ""}
        face = "none" if is_hollow else style["color"]
        axes.errorbar(size, stat.mean, stat.std, capsize=3, markerfacecolor=face, **style)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    _label(axes, [p[0] for p in points], [(p[1], p[2].mean) for p in points])


def _label(axes: Axes, names: list[str], places: list[tuple[float, float]]) -> None:
    """Write each name where it overlaps least with points and earlier names."""
    axes.autoscale_view()
    taken = [Bbox([p - 4, p + 4]) for p in map(axes.transData.transform, places)]
    for name, place in zip(names, places, strict=True):
        text = literal(name)
        tried = [
            axes.annotate(text, place, offset, textcoords="offset points", fontsize=8, ha=align)
            for offset, align in OFFSETS.items()
        ]
        boxes = {drawn: drawn.get_window_extent() for drawn in tried}
        best = min(tried, key=lambda drawn: _covered(boxes[drawn], taken))  # the first of equals
        taken.append(boxes[best])
        for drawn in tried:
            if drawn is not best:
                drawn.remove()


def _covered(box: Bbox, others: list[Bbox]) -> float:
    """Area that a box shares with others, in pixels."""
    shared = (Bbox.intersection(box, other) for other in others)
    return sum(part.width * part.height for part in shared if part is not None)


def render(draw: Callable[[], Figure | None], dark: bool = False) -> bytes | None:
    """PNG of a figure on a light or dark background; None if there is no data."""
    with mpl.rc_context(DARK if dark else LIGHT):
        figure = draw()
        if figure is None:
            return None
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        return buffer.getvalue()


def page_figure(draw: Callable[[], Figure | None], alt: str, caption: str) -> PageFigure | None:
    """A figure on light and on dark paper; None if there is no data."""
    light, dark = render(draw), render(draw, dark=True)
    return PageFigure(light, dark, alt, caption) if light and dark else None


def _round_down(percent: float) -> float:
    """The lower end of an axis: a multiple of ten below a percentage."""
    return max(0.0, 10.0 * math.ceil(percent / 10 - 1))


def _heat_map(axes: Axes, values: np.ndarray, low: float, high: float, label: str = "") -> None:
    # Viridis has equal steps in lightness, also without colour vision.
    image = axes.imshow(values, cmap="viridis", vmin=low, vmax=high, aspect="auto")
    figure_of(axes).colorbar(image, ax=axes, label=label)
    axes.grid(visible=False)
    count_from_one(axes.xaxis, values.shape[1])
    count_from_one(axes.yaxis, values.shape[0])
