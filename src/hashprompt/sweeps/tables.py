"""A sweep as tables: how far it is, and what it found."""

import time
from collections.abc import Sequence

from hashprompt.report.compare import METRICS
from hashprompt.report.text_table import Stat, TextTable
from hashprompt.runs.plan import without_folders
from hashprompt.sweeps.folder import CellState
from hashprompt.sweeps.grid import Cell

MOST_LISTED = 20  # cells that a terminal can show at once

States = Sequence[tuple[Cell, CellState]]


class StatusTable(TextTable):
    """Cells that run or failed; the others are counted in the title."""

    def __init__(self, states: States) -> None:
        self._states = list({cell.digest: (cell, state) for cell, state in states}.values())

    @property
    def title(self) -> str:
        kinds = [state.state for _, state in self._states]
        counted = (f"{kinds.count(k)} {k}" for k in ("done", "running", "failed", "waiting"))
        return f"{len(kinds)} cells: {', '.join(counted)}"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["row", "seed", "stream", "state", "task", "now", "ETA"]
        told = [pair for pair in self._states if pair[1].state in ("running", "failed")]
        body = [_line(cell, state) for cell, state in told[:MOST_LISTED]]
        return header, body


class ResultTable(TextTable):
    """Mean and deviation over seeds, a line for each row on each stream and backbone."""

    def __init__(self, states: States) -> None:
        self._groups: dict[tuple[str, str, str], list[CellState]] = {}
        for cell, state in states:
            names = without_folders(cell.plan.to_dict())
            key = (cell.row, names["stream"], names["backbone"])
            self._groups.setdefault(key, []).append(state)

    @property
    def title(self) -> str:
        return "Accuracies in %, mean ± std over n seeds"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["row", "stream", "backbone", "n", *METRICS]
        body = []
        for names, states in self._groups.items():
            done = [state.details for state in states if state.state == "done"]
            stats = [Stat.of([result["metrics"].get(m) for result in done]) for m in METRICS]
            count = f"{len(done)}" if len(done) == len(states) else f"{len(done)}/{len(states)}"
            body.append([*names, count, *("–" if stat is None else str(stat) for stat in stats)])
        return header, body


def _line(cell: Cell, state: CellState) -> list[str]:
    names = without_folders(cell.plan.to_dict())
    about = [cell.row, str(cell.plan.seed), names["stream"], state.state]
    found = state.details
    if state.state == "failed":
        return [*about, "", f"{found['attempts']} attempts", ""]
    share = found["done"] / found["steps"] if found["steps"] else 0.0
    done = found["task"] - found["first_task"] + 0.5 * share  # training is about half of a task
    left = found["tasks"] - found["task"] - 0.5 * share
    seconds = (time.time() - found["started"]) * left / done if done > 0 else None
    task = f"{min(found['task'] + 1, found['tasks'])}/{found['tasks']}"
    progress = f"{found['phase']} {found['done']}/{found['steps']}" if found["steps"] else ""
    return [*about, task, progress or found["phase"], _time(seconds)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
