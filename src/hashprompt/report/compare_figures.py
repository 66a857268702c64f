"""Figures of many runs; separate from the table, which does not need matplotlib."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from hashprompt.report import figures
from hashprompt.report.compare import Comparison
from hashprompt.report.text_table import Stat


def compare_figure(comparison: Comparison) -> Figure:
    """Average accuracy after each task, one line per row with deviations over seeds."""
    axes = figures.new_axes("Average accuracy on all classes so far", "after task", "accuracy (%)")
    curves = {row.name: row.curve for row in comparison.rows}
    figures.plot_lines(axes, curves)
    last = max((task for curve in curves.values() for task in curve), default=0)
    figures.count_from_one(axes.xaxis, 1 + last)
    figures.legend_below(axes, columns=1 if len(curves) <= 6 else 3)
    return figures.figure_of(axes)


def cost_figure(comparison: Comparison) -> Figure:
    """Final accuracy against stored bytes (as Figure 1b of the paper).

    A value takes four bytes, an image its pixels. Methods that keep images have a hollow mark.
    """
    keeping = any(row.keeps_images for row in comparison.rows)
    title = "Accuracy and storage" + (" (hollow: keeps images)" if keeping else "")
    axes = figures.new_axes(title, "MB stored next to the frozen ViT", "final average accuracy (%)")
    points = [
        (row.label, max(row.stored_bytes, 1) / 1e6, stat, bool(row.keeps_images))
        for row in comparison.rows
        if (stat := row.stat("FAA"))
    ]
    plot_points(axes, points)
    return figures.figure_of(axes)


def plot_points(axes: Axes, points: Sequence[tuple[str, float, Stat, bool]]) -> None:
    """Accuracies against sizes with names: name, size, accuracy, whether the mark is hollow."""
    for number, (_, size, stat, is_hollow) in enumerate(points):
        style = figures.line_style(number) | {"ls": ""}
        face = "none" if is_hollow else style["color"]
        axes.errorbar(size, stat.mean, stat.std, capsize=3, markerfacecolor=face, **style)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    _label(axes, [p[0] for p in points], [(p[1], p[2].mean) for p in points])


# Places of a name: offset from its point, alignment.
OFFSETS = {
    **{(6, 3): "left", (6, -9): "left", (-6, 3): "right", (-6, -9): "right"},
    **{(0, 8): "center", (0, -14): "center"},
}


def _label(axes: Axes, names: list[str], places: list[tuple[float, float]]) -> None:
    """Write each name where it overlaps least with points and earlier names."""
    axes.autoscale_view()
    taken = [Bbox([p - 4, p + 4]) for p in map(axes.transData.transform, places)]
    for name, place in zip(names, places, strict=True):
        text = figures.literal(name)
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
