"""The figures of the paper from our runs, and two others.

A function returns None if a place has no runs for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hashprompt.data.streams.names import DEMO
from hashprompt.paper.data import find_experiment
from hashprompt.paper.grids import Place
from hashprompt.paper.results import Results
from hashprompt.report import ResultData, figures, measures
from hashprompt.report.text_table import Stat

MODULATOR = {"MoE": "without the modulator", "MoE + HDR + HGM": "with the modulator"}


def plasticity(results: Results, place: Place) -> Figure | None:
    """1a: accuracy on the new classes of each task."""
    rows = results.rows(place, "T2", "CUB-200")
    lines = {}
    for name in ("Hash (Ours)", "HiDe-Prompt", "NoRGa"):
        if runs := rows.get(name):
            matrices = [run["accuracy"] for run in runs]
            lines[name] = {t: [m[t][t] for m in matrices] for t in range(len(matrices[0]))}
    axes = figures.new_axes("1a  Accuracy on new classes", "task", "accuracy right after it (%)")
    figures.count_from_one(axes.xaxis, max(map(len, lines.values()), default=1))
    return _drawn(axes, lines)


def accuracy_and_size(results: Results, place: Place) -> Figure | None:
    """1b: accuracy against the number of values in prompts, routers and keys."""
    axes = figures.new_axes(
        "1b  Accuracy and size", "values in prompts, routers and keys", "FAA (%)"
    )
    points = []
    for name, runs in results.rows(place, "T1", "ImageNet-R").items():
        size, faa = Stat.of([*map(measures.prompt_parameters, runs)]), _metric(runs, "FAA")
        if size and faa:
            points.append((name, max(size.mean, 1), faa, False))
    figures.plot_points(axes, points)
    return figures.figure_of(axes) if points else None


def expert_use(results: Results, place: Place) -> Figure | None:
    """1c: share of each expert with and without the modulator, first seed."""
    axes = figures.new_axes("1c  Use of the experts", "expert", "% of all activations")
    rows = results.rows(place, "T5", "ImageNet-R")
    for number, (row, label) in enumerate(MODULATOR.items()):
        run = next(iter(rows.get(row, [])), {})
        if shares := measures.usage_shares(run):
            numbers = f"forgetting {run['metrics']['FM']:.1f}, "
            numbers += f"entropy {measures.usage_entropy(run):.2f}, "
            numbers += f"variation {measures.variation(shares):.2f}"
            places = [expert + 0.4 * number - 0.2 for expert in range(len(shares))]
            heights = [100 * share for share in shares]
            colour = figures.PALETTE[number]
            axes.bar(places, heights, 0.4, color=colour, label=f"{label}: {numbers}")
            figures.count_from_one(axes.xaxis, len(shares))
    axes.grid(visible=False, axis="x")
    return _drawn(axes)


def forgetting(results: Results, place: Place) -> Figure | None:
    """3a: forgetting with and without the modulator, on every data set."""
    experiment = find_experiment("F3")
    axes = figures.new_axes("3a  Forgetting", "", "FM (points)")
    sets = experiment.sets_at(place.scale)
    for position, name in enumerate(sets):
        rows = results.rows(place, "F3", name)
        for number, row in enumerate(experiment.rows):
            if found := _metric(rows.get(row.name, []), "FM"):
                known = axes.get_legend_handles_labels()[1]
                label = row.name if row.name not in known else None
                where = position + 0.36 * number - 0.18
                axes.bar(where, found.mean, 0.34, color=figures.PALETTE[number], label=label)
                ink = axes.xaxis.label.get_color()
                axes.errorbar(where, found.mean, yerr=found.std, color=ink)
    names = sets if place.scale == "full" else [place.stream or DEMO]
    axes.set_xticks(range(len(names)), [figures.literal(name) for name in names])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    return _drawn(axes)


def use_per_task(panel: str, row: str, results: Results, place: Place) -> Figure | None:
    """3b, 3c: share of each expert in each task, first seed that has a pool."""
    rows = results.rows(place, "T5", "ImageNet-R")
    usages: dict[str, list[list[int]]] = {
        name: next((run["usage"] for run in rows.get(name, []) if run["usage"]), [])
        for name in MODULATOR
    }
    if not usages[row]:
        return None
    axes = figures.usage_map(usages[row])
    # One scale of colours for both panels.
    highest = max(max(task) / max(sum(task), 1) for both in usages.values() for task in both)
    axes.images[0].set_clim(0, 100 * highest)
    axes.set_title(f"{panel}  Use of the experts {MODULATOR[row]}", loc="left", weight="bold")
    return figures.figure_of(axes)


def long_sequence(results: Results, place: Place) -> Figure | None:
    """4a: average accuracy after every tenth task of the longest stream."""
    axes = figures.new_axes("4a  Long sequence", "after task", "average accuracy (%)")
    rows = results.rows(place, "F4")
    longest = {row.series: rows.get(row.name, []) for row in find_experiment("F4").rows}
    lines: dict[str, dict[float, list[float]]] = {}
    for series, runs in longest.items():
        if runs:
            tasks = range(10, len(runs[0]["after_task"]) + 1, 10)
            lines[series] = {n: [r["after_task"][n - 1]["average"] for r in runs] for n in tasks}
            axes.set_xticks(tasks)
    return _drawn(axes, lines)


def number_of_tasks(results: Results, place: Place) -> Figure | None:
    """4b: accuracy against the number of tasks."""
    axes = figures.new_axes("4b  Accuracy and the number of tasks", "tasks", "FAA (%)")
    lines = _series(results, place, "F4", "FAA")
    axes.set_xticks(sorted({x for points in lines.values() for x in points}))
    return _drawn(axes, lines)


def sensitivity(results: Results, place: Place) -> Figure | None:
    """5: FAA and FM against δ and α, with a vertical line at the default."""
    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    found = {metric: _series(results, place, "F5", metric) for metric in ("FAA", "FM")}
    for column, (symbol, default) in enumerate((("δ", 0.4), ("α", 0.1))):
        for line, (metric, series) in enumerate(found.items()):
            axes = panels[line][column]
            figures.plot_lines(axes, {symbol: series[symbol]} if symbol in series else {})
            axes.axvline(default, color=figures.PALETTE[1], ls="--", lw=1)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_ylabel(f"{metric} (%)" if column == 0 else "")
        panels[1][column].set_xlabel(f"{symbol} (dashed: the paper's choice)")
    panels[0][1].set_xscale("log")
    figure.suptitle("5  Sensitivity to δ and α", x=0.02, ha="left", weight="bold")
    return figure if any(found.values()) else None


def batch_size(results: Results, place: Place) -> Figure | None:
    """Accuracy against the batch size of evaluation."""
    axes = figures.new_axes("Accuracy and evaluation batch", "images per batch", "FAA (%)")
    lines = {
        name: {
            options["eval_batch_size"]: values
            for way, options in find_experiment("F6").evaluate.items()
            if any(values := [measures.evaluation(way)(run) for run in runs])
        }
        for name, runs in results.rows(place, "F6").items()
    }
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    return _drawn(axes, lines, columns=2)


def drift(results: Results, place: Place) -> Figure | None:
    """Distance of stored means of old classes from recomputed ones, after each task."""
    axes = figures.new_axes("Drift of stored class means", "after task", "distance (σ)")
    lines: dict[str, dict[float, list[float]]] = {}
    for name, runs in results.rows(place, "F7").items():
        found = [measures.drift_by_task(run) for run in runs]
        lines[name] = {task: [each[task] for each in found] for task in found[0]}
        figures.count_from_one(axes.xaxis, max(found[0], default=0) + 1)
    figure = _drawn(axes, lines, columns=2)
    axes.set_ylim(bottom=0)
    return figure


DrawFigure = Callable[[Results, Place], Figure | None]
FIGURES: dict[str, tuple[DrawFigure, str]] = {
    "1a": (plasticity, "A higher line learns new classes better."),
    "1b": (accuracy_and_size, "Up and to the left is better. Without heads and statistics."),
    "1c": (expert_use, "Entropy 1 is equal use; variation is deviation over mean. First seed."),
    "3a": (forgetting, "Mean loss of a task from its best accuracy."),
    "3b": (partial(use_per_task, "3b", "MoE"), "One row per task; first seed."),
    "3c": (partial(use_per_task, "3c", "MoE + HDR + HGM"), "As 3b, with the modulator."),
    "4a": (long_sequence, "The longest stream, after every tenth task."),
    "4b": (number_of_tasks, "The same classes in more and smaller tasks."),
    "5": (sensitivity, "Where a line is flat, the value does not matter."),
    "batch": (batch_size, "Flat if accuracy does not depend on the other images of a batch."),
    "drift": (drift, "Recomputed means need the old images, which are read for this figure only."),
}


def _series(results: Results, place: Place, table: str, metric: str) -> dict[str, figures.Points]:
    """Lines of an experiment with at least two points; x is the number of tasks by default."""
    lines: dict[str, dict[float, list[float]]] = {}
    for name, runs in results.rows(place, table).items():
        row = find_experiment(table).row(name)
        x = len(runs[0]["accuracy"]) if row.x is None else row.x
        lines.setdefault(row.series, {})[x] = [run["metrics"][metric] for run in runs]
    return {name: dict(sorted(line.items())) for name, line in lines.items() if len(line) > 1}


def _metric(runs: Sequence[ResultData], name: str) -> Stat | None:
    return Stat.of([run["metrics"][name] for run in runs])


def _drawn(
    axes: Axes, lines: Mapping[str, figures.Points] | None = None, columns: int = 1
) -> Figure | None:
    """The figure with a legend, or None if nothing was drawn."""
    figures.plot_lines(axes, lines or {})
    if not axes.get_legend_handles_labels()[0]:
        return None
    figures.legend_below(axes, columns)
    return figures.figure_of(axes)
