"""Figures over many runs; apart from the table, which does without matplotlib."""

from matplotlib.figure import Figure

from hashprompt.report.compare import Comparison
from hashprompt.report.figures import (
    MARKERS,
    PALETTE,
    count_from_one,
    figure_of,
    legend_below,
    literal,
    new_axes,
)


def compare_figure(comparison: Comparison) -> Figure:
    """Average accuracy after each task, one line per row with a band of ± one std over seeds."""
    axes = new_axes("Average accuracy while tasks arrive", "after learning task", "$A_t$ (%)")
    for number, row in enumerate(comparison.rows):
        colour = PALETTE[number % len(PALETTE)]
        style = ("-", "--", ":")[number // len(PALETTE) % 3]
        marker = MARKERS[number % len(MARKERS)]
        tasks = list(row.curve)
        means = [stat.mean for stat in row.curve.values()]
        spread = [stat.std or 0.0 for stat in row.curve.values()]
        axes.plot(
            tasks, means, color=colour, ls=style, marker=marker, ms=5, label=literal(row.name)
        )
        if len(tasks) == 1:  # joint training has only an end: the level others aim at
            axes.axhline(means[0], color=colour, ls=":", lw=1)
        if any(spread):
            low = [m - s for m, s in zip(means, spread, strict=True)]
            high = [m + s for m, s in zip(means, spread, strict=True)]
            axes.fill_between(tasks, low, high, color=colour, alpha=0.2, lw=0)
    last = max((task for row in comparison.rows for task in row.curve), default=0)
    count_from_one(axes.xaxis, last + 1)
    legend_below(axes, columns=1 if len(comparison.rows) <= 6 else 3)
    return figure_of(axes)


def cost_figure(comparison: Comparison) -> Figure:
    """Final accuracy against what is stored (as Figure 1b of the paper), in bytes.

    A number takes four bytes, an image its pixels; who keeps images has a hollow mark.
    """
    keeping = any(row.keeps_images for row in comparison.rows)
    title = "Accuracy and what is stored" + (" (hollow: keeps images)" if keeping else "")
    axes = new_axes(title, "MB stored beside the frozen ViT", "FAA (%)")
    shown = [(row, stat) for row in comparison.rows if (stat := row.metrics["FAA"])]
    places = [(max(row.stored_bytes, 1) / 1e6, stat.mean) for row, stat in shown]
    for number, ((row, stat), where) in enumerate(zip(shown, places, strict=True)):
        colour = PALETTE[number % len(PALETTE)]
        marker = MARKERS[number % len(MARKERS)]
        axes.errorbar(
            *where,
            yerr=stat.std,
            color=colour,
            marker=marker,
            markerfacecolor="none" if row.keeps_images else colour,
            ls="",
            capsize=3,
        )
        left = _has_right_neighbour(where, places)
        beside = (-6 if left else 6, 3 if _is_above(where, places) else -9)
        axes.annotate(
            literal(row.label),
            where,
            xytext=beside,
            textcoords="offset points",
            fontsize=8,
            ha="right" if left else "left",
        )
    axes.set_xscale("log")
    axes.margins(x=0.15)
    return figure_of(axes)


def _is_above(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    """Whether a label belongs above its point: where the nearest point at its side is below."""
    size, accuracy = point
    beside = [y for x, y in others if (x, y) != point and 1 / 2 < x / size < 2]
    return not beside or min(beside, key=lambda y: abs(y - accuracy)) <= accuracy


def _has_right_neighbour(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    """Whether a label at the right of its point would run into another point."""
    heights = [y for _, y in others]
    near = (max(heights) - min(heights)) / 15
    size, accuracy = point
    return any(size < x < 4 * size and abs(y - accuracy) < near for x, y in others)
