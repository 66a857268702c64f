"""GPU hours of runs at full scale, without any images."""

from collections.abc import Sequence

from hashprompt.data.sets.base import SETS
from hashprompt.paper.data import find_experiment, scale_table
from hashprompt.runs.plan import Plan, make_plan
from hashprompt.sweeps.estimate import Sizes, cost_of
from hashprompt.sweeps.grid import GridRun
from hashprompt.texts import counted


def full_cost(runs: Sequence[GridRun]) -> str:
    """The GPU hours of runs, in words."""
    plans = list({run.digest: run.plan for run in runs}.values())
    sizes = [(planned, task_sizes(planned)) for planned in plans]
    unknown = {planned.stream for planned, tasks in sizes if tasks is None}
    passes = sum(cost_of(planned, tasks).passes for planned, tasks in sizes if tasks is not None)
    text = (
        f"{counted(len(plans), 'run', 'runs')}. About {passes / 1e6:,.0f} million passes, "
        f"{passes / passes_per_hour():,.0f} hours of one A100 at the speed of the paper's "
        "HiDe-Prompt on CIFAR-100 (T14)."
    )
    if unknown:
        text += f" Not counted: {', '.join(sorted(unknown))} (unknown number of images)."
    return text


def passes_per_hour() -> float:
    """Speed of the paper's A100, from the hours of HiDe-Prompt on CIFAR-100 in T14."""
    times = find_experiment("T14")
    hours = times.value(times.row("Hide"), times.columns[0])
    hide = make_plan("hide", "split-cifar100", "sup21k")
    assert hours is not None
    return cost_of(hide, task_sizes(hide)).passes / hours.mean


def task_sizes(planned: Plan) -> Sizes | None:
    """Sizes of the tasks of a published data set, assumed equal; None if unknown."""
    counts = SETS[planned.stream].counts
    if counts is None:
        return None
    spec = next(s for s in scale_table().sets.values() if s.stream == planned.stream)
    tasks = planned.stream_options.tasks or spec.tasks
    train, test = counts
    if spec.shared_test:  # evaluated once after each task, as if it belonged to the first
        return [(train // tasks, test if task == 0 else 0) for task in range(tasks)]
    return [(train // tasks, test // tasks)] * tasks
