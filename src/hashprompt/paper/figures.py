"""The figures of the paper from our runs, and two that test what it says in words.

A function returns None where the place has no runs for it.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hashprompt.data.streams.names import DEMO
from hashprompt.paper.data import Experiment, PaperRow, find_experiment
from hashprompt.paper.grids import Place
from hashprompt.paper.measures import (
    asked,
    prompt_parameters,
    usage_entropy,
    usage_shares,
    variation,
)
from hashprompt.paper.results import Results, Runs
from hashprompt.report import ResultData, drift_by_task
from hashprompt.report.figures import (
    MARKERS,
    PALETTE,
    count_from_one,
    figure_of,
    legend_below,
    literal,
    new_axes,
    usage_map,
)

MODULATOR = {"MoE": "without the modulator", "MoE + HDR + HGM": "with the modulator"}
Drawn = Figure | None


class Source:
    """The runs that a figure is drawn from."""

    def __init__(self, results: Results, place: Place) -> None:
        self._results, self.place = results, place

    def runs(self, table: str, row: str, data_set: str) -> list[ResultData]:
        """Of a row; at a place with one stream, on that one."""
        experiment = find_experiment(table)
        sets = experiment.sets_at(self.place.scale)
        name = data_set if data_set in sets else next(iter(sets), "")
        found: Runs = self._results.find(self.place, experiment, experiment.row(row), name)
        return [found[chance] for chance in sorted(found)]  # the first seed first

    def rows(self, table: str, data_set: str) -> dict[str, list[ResultData]]:
        """Those of a table that were run."""
        names = [row.name for row in find_experiment(table).rows]
        found = {name: self.runs(table, name, data_set) for name in names}
        return {name: runs for name, runs in found.items() if runs}


def plasticity(source: Source) -> Drawn:
    """1a: accuracy on the new classes at each step."""
    axes = new_axes("1a  Accuracy on new classes", "task", "right after learning it (%)")
    for name in ("Hash (Ours)", "HiDe-Prompt", "NoRGa"):
        runs = source.runs("T2", name, "CUB-200")
        matrices = [run["accuracy"] for run in runs]
        if matrices:
            diagonals = [[m[t][t] for t in range(len(m))] for m in matrices]
            _line(axes, name, range(len(diagonals[0])), list(zip(*diagonals, strict=True)))
            count_from_one(axes.xaxis, len(diagonals[0]))
    return _with_legend(axes)


def accuracy_and_size(source: Source) -> Drawn:
    """1b: accuracy against the numbers of prompts, routers and keys."""
    axes = new_axes("1b  Accuracy and size", "prompts, routers and keys (numbers)", "FAA (%)")
    rows = source.rows("T1", "ImageNet-R")
    for number, (name, runs) in enumerate(rows.items()):
        size = fmean(prompt_parameters(run) for run in runs)
        mean, deviation = _mean([run["metrics"]["FAA"] for run in runs])
        mark: dict[str, Any] = {"color": PALETTE[number % 6], "marker": MARKERS[number // 6 % 6]}
        axes.errorbar(size, mean, yerr=deviation, ls="", capsize=3, label=literal(name), **mark)
    axes.set_xscale("log")
    return _with_legend(axes, columns=3)


def expert_use(source: Source) -> Drawn:
    """1c: share of each expert with and without the modulator, and what was forgotten."""
    axes = new_axes("1c  Use of the experts", "expert", "% of all activations")
    found = {}
    for row, label in MODULATOR.items():
        for run in source.runs("T5", row, "ImageNet-R")[:1]:
            if shares := usage_shares(run):
                found[label] = (run, shares)
    for number, (label, (run, shares)) in enumerate(found.items()):
        numbers = f"forgetting {run['metrics']['FM']:.1f}, entropy {usage_entropy(run):.2f}, "
        numbers += f"variation {variation(shares):.2f}"
        places = [e + 0.4 * number - 0.2 for e in range(len(shares))]
        heights = [100 * share for share in shares]
        label = f"{label}: {numbers}"
        axes.bar(places, heights, 0.4, color=PALETTE[number], label=label)
        count_from_one(axes.xaxis, len(shares))
    axes.grid(visible=False, axis="x")
    return _with_legend(axes)


def forgetting(source: Source) -> Drawn:
    """3a: forgetting with and without the modulator, on every data set."""
    experiment = find_experiment("F3")
    axes = new_axes("3a  Forgetting", "", "FM (points)")
    sets = experiment.sets_at(source.place.scale)
    for number, row in enumerate(experiment.rows):
        for place, name in enumerate(sets):
            runs = source.runs("F3", row.name, name)
            if runs:
                mean, deviation = _mean([run["metrics"]["FM"] for run in runs])
                known = axes.get_legend_handles_labels()[1]
                label = row.name if row.name not in known else None
                where = place + 0.36 * number - 0.18
                axes.bar(where, mean, 0.34, color=PALETTE[number], label=label)
                axes.errorbar(where, mean, yerr=deviation, color=axes.xaxis.label.get_color())
    names = sets if source.place.scale == "full" else [source.place.stream or DEMO]
    axes.set_xticks(range(len(names)), [literal(name) for name in names])
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    return _with_legend(axes)


def _use_per_task(panel: str, row: str) -> Callable[[Source], Drawn]:
    def draw(source: Source) -> Drawn:
        usages = {name: _usage(source.runs("T5", name, "ImageNet-R")) for name in MODULATOR}
        if not usages[row]:
            return None
        axes = usage_map(usages[row], "task")
        # One scale of colours for both panels.
        highest = max(max(task) / max(sum(task), 1) for both in usages.values() for task in both)
        axes.images[0].set_clim(0, 100 * highest)
        axes.set_title(f"{panel}  Use of the experts {MODULATOR[row]}", loc="left", weight="bold")
        return figure_of(axes)

    return draw


def _usage(runs: list[ResultData]) -> list[list[int]]:
    """Activations of each expert in each task, of the first run."""
    return next((run["usage"] for run in runs if run["usage"]), [])


def long_sequence(source: Source) -> Drawn:
    """4a: average accuracy after every tenth task of the longest stream."""
    axes = new_axes("4a  Long sequence", "after task", "average of all tasks so far (%)")
    for row in _of_series("F4", ("Hash", "CODA-Prompt", "L2P"), last=True):
        runs = source.runs("F4", row.name, "CIFAR-100")
        if runs:
            count = len(runs[0]["after_task"])
            tasks = range(9, count, 10)
            values = [[run["after_task"][task]["average"] for run in runs] for task in tasks]
            _line(axes, row.series, [task + 1 for task in tasks], values)
            axes.set_xticks([task + 1 for task in tasks])
    return _with_legend(axes)


def number_of_tasks(source: Source) -> Drawn:
    """4b: accuracy against the number of tasks."""
    axes = new_axes("4b  Accuracy and the number of tasks", "tasks", "FAA (%)")
    counts = _series(axes, source, "F4", "FAA", lambda row, runs: len(runs[0]["accuracy"]))
    axes.set_xticks(counts)
    return _with_legend(axes)


def sensitivity(source: Source) -> Drawn:
    """5: FAA and FM against δ and α; the default is a vertical line."""
    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    drawn = False
    for column, (symbol, default) in enumerate((("δ", 0.4), ("α", 0.1))):
        for line, metric in enumerate(("FAA", "FM")):
            axes = panels[line][column]
            drawn |= bool(_series(axes, source, "F5", metric, _own_x, (symbol,)))
            axes.axvline(default, color=PALETTE[1], ls="--", lw=1)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_ylabel(f"{metric} (%)" if column == 0 else "")
        panels[1][column].set_xlabel(f"{symbol} (dashed: the paper's choice)")
    panels[0][1].set_xscale("log")
    figure.suptitle("5  Sensitivity to δ and α", x=0.02, ha="left", weight="bold")
    return figure if drawn else None


def batch_size(source: Source) -> Drawn:
    """Accuracy against the batch size of evaluation: flat, unless images of a batch meet."""
    axes = new_axes("Evaluation batch", "images in a batch of evaluation", "FAA (%)")
    experiment = find_experiment("F6")
    for name, runs in source.rows("F6", experiment.sets[0]).items():
        points = {}
        for way, options in experiment.ask.items():
            values = [value for run in runs if (value := asked(way)(run)) is not None]
            if values:
                points[options["eval_batch_size"]] = values
        if points:
            _line(axes, name, list(points), list(points.values()))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:g}")
    return _with_legend(axes, columns=2)


def stored_means(source: Source) -> Drawn:
    """Distance of stored means of old classes from the truth, after each task."""
    title = "Stored means of old classes, and where the classes are"
    axes = new_axes(title, "after task", "distance (class spreads)")
    for name, runs in source.rows("F7", "CIFAR-100").items():
        found = [drift_by_task(run) for run in runs]
        if tasks := list(found[0]):
            _line(axes, name, tasks, [[each[task] for each in found] for task in tasks])
            count_from_one(axes.xaxis, tasks[-1] + 1)
    axes.set_ylim(bottom=0)
    return _with_legend(axes, columns=2)


def time_per_phase(source: Source) -> Drawn:
    """Where the time of training goes (T14)."""
    axes = new_axes("Training time by phase (T14)", "seconds of a run", "")
    rows = source.rows("T14", "CIFAR-100")
    colours: dict[str, str] = {}
    for name, runs in reversed(rows.items()):
        left = 0.0
        for phase, seconds in _phases(runs).items():
            is_new = phase not in colours
            colour = colours.setdefault(phase, PALETTE[len(colours) % len(PALETTE)])
            label = literal(phase) if is_new else None
            axes.barh(literal(name), seconds, 0.6, left=left, color=colour, label=label)
            left += seconds
    axes.grid(visible=False, axis="y")
    return _with_legend(axes, columns=4)


FIGURES: dict[str, tuple[Callable[[Source], Drawn], str]] = {
    "1a": (plasticity, "A higher line learns new classes better."),
    "1b": (accuracy_and_size, "Up and to the left is better. Heads and statistics do not count."),
    "1c": (expert_use, "Entropy 1 is even use; variation is deviation over mean. First seed."),
    "3a": (forgetting, "Points a task loses on average between its best moment and the end."),
    "3b": (_use_per_task("3b", "MoE"), "One row per task; first seed."),
    "3c": (_use_per_task("3c", "MoE + HDR + HGM"), "As 3b; compare how many columns are bright."),
    "4a": (long_sequence, "The longest stream, seen after every tenth task."),
    "4b": (number_of_tasks, "The same classes in more and smaller tasks."),
    "5": (sensitivity, "A flat line means that the choice does not matter."),
    "batch": (batch_size, "Flat, where an answer does not depend on the other images."),
    "drift": (stored_means, "Old training images were looked at again for this figure alone."),
    "time": (time_per_phase, "Mean of the runs. Only rows of the same machine compare."),
}


def _own_x(row: PaperRow, runs: list[ResultData]) -> float:
    return row.x or 0.0


def _of_series(table: str, names: Sequence[str], last: bool = False) -> list[PaperRow]:
    rows = find_experiment(table).rows
    found = [[row for row in rows if row.series == name] for name in names]
    return [row for group in found for row in (group[-1:] if last else group)]


def _series(
    axes: Axes,
    source: Source,
    table: str,
    metric: str,
    x_of: Callable[[PaperRow, list[ResultData]], float],
    only: Sequence[str] = (),
) -> list[float]:
    """A line for each series of an experiment; the places of all points, or nothing."""
    experiment: Experiment = find_experiment(table)
    names = only or list(dict.fromkeys(row.series for row in experiment.rows))
    places: set[float] = set()
    for name in names:
        points = {}
        for row in _of_series(table, (name,)):
            if runs := source.runs(table, row.name, experiment.sets[0]):
                points[x_of(row, runs)] = [run["metrics"][metric] for run in runs]
        if len(points) > 1:  # one point is no line
            ordered = sorted(points)
            _line(axes, name, ordered, [points[x] for x in ordered])
            places.update(ordered)
    return sorted(places)


def _line(
    axes: Axes, name: str, places: Sequence[float], values: Sequence[Sequence[float]]
) -> None:
    """Means with their deviations over runs."""
    number = len(axes.containers)
    means = [_mean(group)[0] for group in values]
    spread = [_mean(group)[1] or 0.0 for group in values]
    style: dict[str, Any] = {
        "color": PALETTE[number % 6],
        "marker": MARKERS[number % 6],
        "ms": 5,
        "capsize": 3,
    }
    axes.errorbar(places, means, yerr=spread, label=literal(name), **style)


def _mean(values: Sequence[float]) -> tuple[float, float | None]:
    return fmean(values), stdev(values) if len(values) > 1 else None


def _phases(runs: list[ResultData]) -> dict[str, float]:
    """Mean seconds of each phase of training."""
    totals: dict[str, float] = {}
    for run in runs:
        for entry in run["timings"]:
            if entry["phase"] != "evaluate":
                totals[entry["phase"]] = totals.get(entry["phase"], 0.0) + entry["seconds"]
    return {phase: seconds / len(runs) for phase, seconds in totals.items()}


def _with_legend(axes: Axes, columns: int = 1) -> Drawn:
    """The figure, or None if nothing was drawn."""
    if not axes.get_legend_handles_labels()[0]:
        return None
    legend_below(axes, columns)
    return figure_of(axes)
