"""Figures over many runs; apart from the table, which does without matplotlib."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

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
    axes.set_xscale("log")
    axes.margins(x=0.15)
    _label(axes, [row.label for row, _ in shown], places)
    return figure_of(axes)


BESIDE = {(6, 3): "left", (6, -9): "left", (-6, 3): "right", (-6, -9): "right"}
ABOVE_AND_BELOW = {(0, 8): "center", (0, -14): "center"}


def _label(axes: Axes, names: list[str], places: list[tuple[float, float]]) -> None:
    """Write each name where it covers least of the points and of the names before it."""
    axes.autoscale_view()
    taken = [Bbox([p - 4, p + 4]) for p in map(axes.transData.transform, places)]
    for name, place in zip(names, places, strict=True):
        tried = [
            axes.annotate(
                literal(name), place, offset, textcoords="offset points", fontsize=8, ha=align
            )
            for offset, align in {**BESIDE, **ABOVE_AND_BELOW}.items()
        ]
        boxes = {text: text.get_window_extent() for text in tried}
        best = min(tried, key=lambda text: _covered(boxes[text], taken))  # the first of equals
        taken.append(boxes[best])
        for text in tried:
            if text is not best:
                text.remove()


def _covered(box: Bbox, others: list[Bbox]) -> float:
    """The area, in pixels, that a box shares with others."""
    shared = (Bbox.intersection(box, other) for other in others)
    return sum(part.width * part.height for part in shared if part is not None)
