"""What runs at full scale cost in hours of the paper's GPU, before any image is there."""

from collections.abc import Sequence

from hashprompt.data.sets import SETS
from hashprompt.paper.data import find_experiment, scale_table
from hashprompt.runs.plan import Plan, plan
from hashprompt.sweeps.estimate import Sizes, cost_of
from hashprompt.sweeps.grid import Cell
from hashprompt.texts import counted


def full_cost(cells: Sequence[Cell]) -> str:
    """In words, the hours that cells take."""
    plans = list({cell.digest: cell.plan for cell in cells}.values())
    sizes = [_sizes(planned) for planned in plans]
    known = [(p, s) for p, s in zip(plans, sizes, strict=True) if s is not None]
    unknown = {p.stream for p, s in zip(plans, sizes, strict=True) if s is None}
    passes = sum(cost_of(planned, tasks).passes for planned, tasks in known)
    told = (
        f"{counted(len(plans), 'run', 'runs')}. About {passes / 1e6:,.0f} million passes, "
        f"{passes / gpu_rate():,.0f} hours of one A100 at the speed of the paper's "
        "HiDe-Prompt on CIFAR-100 (T14)."
    )
    if unknown:
        told += (
            f" Not counted: {', '.join(sorted(unknown))}, whose number of images is not known here."
        )
    return told


def gpu_rate() -> float:
    """Passes an hour on the paper's A100, from the hours of HiDe-Prompt on CIFAR-100 in T14."""
    times = find_experiment("T14")
    hours = times.value(times.row("Hide"), times.columns[0])
    hide = plan("hide", "split-cifar100", "sup21k")
    assert hours is not None
    return cost_of(hide, _sizes(hide)).passes / hours.mean


def _sizes(planned: Plan) -> Sizes | None:
    """Of the tasks of a published data set, taken as equal; None where they are not known."""
    counts = SETS[planned.stream].counts
    if counts is None:
        return None
    spec = next(s for s in scale_table().sets.values() if s.stream == planned.stream)
    tasks = planned.stream_options.tasks or spec.tasks
    train, test = counts
    if spec.shared_test:  # as if it came with the first task: it is asked once after each
        return [(train // tasks, test if task == 0 else 0) for task in range(tasks)]
    return [(train // tasks, test // tasks)] * tasks
