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
    """Final accuracy against the numbers that prompts and routers hold (Figure 1b of the paper)."""
    axes = new_axes("Accuracy and size", "parameters of prompts and routers", "FAA (%)")
    shown = [row for row in comparison.rows if row.metrics["FAA"] and row.parameters is not None]
    places = [(row.parameters or 0, row.metrics["FAA"].mean) for row in shown if row.metrics["FAA"]]
    for number, (row, where) in enumerate(zip(shown, places, strict=True)):
        accuracy = row.metrics["FAA"]
        assert accuracy is not None
        colour = PALETTE[number % len(PALETTE)]
        marker = MARKERS[number % len(MARKERS)]
        axes.errorbar(*where, yerr=accuracy.std, color=colour, marker=marker, ls="", capsize=3)
        left = _has_right_neighbour(where, places)
        beside = (-6 if left else 6, 3 if _is_above(where, places) else -9)
        axes.annotate(
            literal(row.name),
            where,
            xytext=beside,
            textcoords="offset points",
            fontsize=8,
            ha="right" if left else "left",
        )
    axes.set_xscale("symlog", linthresh=1000, linscale=0.5)  # methods without prompts are at zero
    largest = max((row.parameters or 0 for row in comparison.rows), default=0)
    axes.set_xticks([0, *(10**power for power in range(3, len(str(int(largest))) + 1))])
    axes.margins(x=0.15)
    return figure_of(axes)


def _is_above(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    """Whether a label belongs above its point: where the nearest point at its side is below."""
    size, accuracy = point
    beside = [y for x, y in others if (x, y) != point and 1 / 2 < (x + 500) / (size + 500) < 2]
    return not beside or min(beside, key=lambda y: abs(y - accuracy)) <= accuracy


def _has_right_neighbour(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    """Whether a label at the right of its point would run into another point."""
    heights = [y for _, y in others]
    near = (max(heights) - min(heights)) / 15
    size, accuracy = point
    return any(size < x < 4 * size and abs(y - accuracy) < near for x, y in others)
