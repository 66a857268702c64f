"""A sweep as tables: progress and results."""

import time
from collections.abc import Sequence
from datetime import timedelta

from hashprompt.report.compare import METRICS
from hashprompt.report.measures import MEASURES
from hashprompt.report.text_table import Stat, TextTable
from hashprompt.runs.plan import without_folders
from hashprompt.sweeps.folder import RunState
from hashprompt.sweeps.grid import GridRun

MAX_LISTED = 20  # runs that fit into a terminal

States = Sequence[tuple[GridRun, RunState]]


def status_table(states: States) -> TextTable:
    """Active and failed runs; the others are counted in the title."""
    different = {run.digest: (run, state) for run, state in states}.values()
    kinds = [state.state for _, state in different]
    counts = (f"{kinds.count(k)} {k}" for k in ("done", "running", "failed", "waiting"))
    header = ["row", "seed", "stream", "state", "task", "now", "ETA"]
    shown = [pair for pair in different if pair[1].state in ("running", "failed")]
    rows = [_line(run, state) for run, state in shown[:MAX_LISTED]]
    return TextTable(f"{len(kinds)} runs: {', '.join(counts)}", header, rows)


def result_table(states: States) -> TextTable:
    """Mean and deviation over seeds: a line per row, stream and backbone."""
    groups: dict[tuple[str, str, str], list[RunState]] = {}
    for run, state in states:
        names = without_folders(run.plan.to_dict())
        groups.setdefault((run.row, names["stream"], names["backbone"]), []).append(state)
    rows = []
    for group, found in groups.items():
        done = [state.details for state in found if state.state == "done"]
        stats = [Stat.of([MEASURES[m](result) for result in done]) for m in METRICS]
        count = f"{len(done)}" if len(done) == len(found) else f"{len(done)}/{len(found)}"
        rows.append([*group, count, *("–" if stat is None else str(stat) for stat in stats)])
    header = ["row", "stream", "backbone", "n", *METRICS]
    return TextTable("Accuracies in %, mean ± std over n seeds", header, rows)


def _line(run: GridRun, state: RunState) -> list[str]:
    stream = without_folders(run.plan.to_dict())["stream"]
    about = [run.row, str(run.plan.seed), stream, state.state]
    found = state.details
    if state.state == "failed":
        return [*about, "", f"{found['attempts']} attempts", ""]
    share = found["done"] / found["steps"] if found["steps"] else 0.0
    done = found["task"] - found["first_task"] + 0.5 * share  # training is about half of a task
    left = found["tasks"] - found["task"] - 0.5 * share
    seconds = (time.time() - found["started"]) * left / done if done > 0 else None
    remaining = "–" if seconds is None else str(timedelta(seconds=round(seconds)))
    task = f"{min(found['task'] + 1, found['tasks'])}/{found['tasks']}"
    progress = f"{found['phase']} {found['done']}/{found['steps']}" if found["steps"] else ""
    return [*about, task, progress or found["phase"], remaining]
