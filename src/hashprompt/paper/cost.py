"""What runs at full scale cost, and what they need that is not on this machine."""

from collections.abc import Sequence

from hashprompt.backbone.catalogue import CATALOGUE, find_file
from hashprompt.data.sets.base import SETS, data_root
from hashprompt.paper.data import find_experiment, scale_table
from hashprompt.runs.plan import Plan, make_plan
from hashprompt.sweeps.estimate import Sizes, cost_of
from hashprompt.sweeps.grid import GridRun
from hashprompt.texts import counted


def full_cost(runs: Sequence[GridRun]) -> str:
    """The GPU hours of runs, in words."""
    different = len({run.digest for run in runs})
    return (
        f"{counted(different, 'run', 'runs')}: about {gpu_hours(runs):,.0f} hours of one A100, at "
        "the speed of the paper's HiDe-Prompt on CIFAR-100 (T14)."
    )


def gpu_hours(runs: Sequence[GridRun]) -> float:
    """Hours on the paper's A100, by the number of passes and its hours for HiDe-Prompt (T14)."""
    times = find_experiment("T14")
    hours = times.value(times.row("Hide"), times.columns[0])
    hide = make_plan("hide", "split-cifar100", "sup21k")
    assert hours is not None
    plans = {run.digest: run.plan for run in runs}.values()
    return hours.mean * sum(map(passes_of, plans)) / passes_of(hide)


def passes_of(planned: Plan) -> int:
    return cost_of(planned, task_sizes(planned)).passes


def missing_files(runs: Sequence[GridRun]) -> list[str]:
    """The commands that get what runs need and this machine does not have."""
    commands = {}
    for plan in (run.plan for run in runs):
        data, root = SETS[plan.stream], data_root(plan.stream_options.data_root)
        own = ".npz" in data.layout and any(root.glob("*.npz"))  # for a part of 5-Datasets
        files = data.files
        if files and not own and not any(file.result(root).exists() for file in files):
            size = sum(file.size or 0 for file in files) / 1e6
            commands[f"hashprompt data fetch {plan.stream}"] = size
        if plan.backbone in CATALOGUE and find_file(plan.backbone) is None:
            size = CATALOGUE[plan.backbone].megabytes
            commands[f"hashprompt backbones fetch {plan.backbone}"] = size
    return [
        f"{command}  ({f'about {size:,.0f} MB' if size else 'unknown size'})"
        for command, size in sorted(commands.items())
    ]


def task_sizes(planned: Plan) -> Sizes:
    """Sizes of the tasks of a published data set, assumed equal."""
    spec = next(s for s in scale_table().sets.values() if s.stream == planned.stream)
    tasks = planned.stream_options.tasks or spec.tasks
    train, test = SETS[planned.stream].counts or spec.images
    if spec.shared_test:  # evaluated once after each task, as if it belonged to the first
        return [(train // tasks, test if task == 0 else 0) for task in range(tasks)]
    return [(train // tasks, test // tasks)] * tasks
