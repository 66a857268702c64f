"""Figures of many runs; separate from the table, which does not need matplotlib."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from hashprompt.report.compare import Comparison
from hashprompt.report.figures import (
    count_from_one,
    figure_of,
    legend_below,
    line_style,
    literal,
    new_axes,
)


def compare_figure(comparison: Comparison) -> Figure:
    """Average accuracy after each task, one line per row with a band of ± one std over seeds."""
    axes = new_axes("Average accuracy on all classes so far", "after task", "accuracy (%)")
    for number, row in enumerate(comparison.rows):
        dashes = ("-", "--", ":")[number // 6 % 3]
        curve = row.curve
        tasks, means = list(curve), [stat.mean for stat in curve.values()]
        spread = [stat.std or 0.0 for stat in curve.values()]
        axes.plot(tasks, means, ls=dashes, label=literal(row.name), **line_style(number))
        colour = axes.lines[-1].get_color()
        if len(tasks) == 1:  # joint training: only a final value
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
    """Final accuracy against stored bytes (as Figure 1b of the paper).

    A value takes four bytes, an image its pixels. Methods that keep images have a hollow mark.
    """
    keeping = any(row.keeps_images for row in comparison.rows)
    title = "Accuracy and storage" + (" (hollow: keeps images)" if keeping else "")
    axes = new_axes(title, "MB stored next to the frozen ViT", "final average accuracy (%)")
    shown = [(row, stat) for row in comparison.rows if (stat := row.stat("FAA"))]
    places = [(max(row.stored_bytes, 1) / 1e6, stat.mean) for row, stat in shown]
    for number, ((row, stat), where) in enumerate(zip(shown, places, strict=True)):
        style = line_style(number)
        face = "none" if row.keeps_images else style["color"]
        axes.errorbar(*where, yerr=stat.std, ls="", capsize=3, markerfacecolor=face, **style)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    _label(axes, [row.label for row, _ in shown], places)
    return figure_of(axes)


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
        tried = [
            axes.annotate(
                literal(name), place, offset, textcoords="offset points", fontsize=8, ha=align
            )
            for offset, align in OFFSETS.items()
        ]
        boxes = {text: text.get_window_extent() for text in tried}
        best = min(tried, key=lambda text: _covered(boxes[text], taken))  # the first of equals
        taken.append(boxes[best])
        for text in tried:
            if text is not best:
                text.remove()


def _covered(box: Bbox, others: list[Bbox]) -> float:
    """Area that a box shares with others, in pixels."""
    shared = (Bbox.intersection(box, other) for other in others)
    return sum(part.width * part.height for part in shared if part is not None)
