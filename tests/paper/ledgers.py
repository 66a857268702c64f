"""Ledgers made by hand: results of the runs of a table, with values that a test chooses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hashprompt.paper.grids import Setting, runs_of
from hashprompt.report.ledger import Ledger
from hashprompt.runs.plan import Plan

Numbers = Callable[[str, int], float]  # (row with its table, seed) -> FAA
NANO = Setting("nano")
MINI = Setting("mini", "npz:/somewhere/birds.npz", "nano")


def result_of(plan: Plan, faa: float, **changes: Any) -> dict[str, Any]:
    """A finished run of two tasks."""
    order = [0, 1, 2, 3] if plan.seed == 0 else [3, 1, 2, 0]
    return {
        "finished": True,
        "config": plan.to_dict(),
        "protocol": {
            "stream": plan.stream,
            "class_order": order,
            "class_names": [f"c{c}" for c in order],
            "tasks": [order[:2], order[2:]],
            "images": [[8, 4], [8, 4]],
            "legacy": [],
        },
        "accuracy": [[90.0, faa], [None, faa]],
        "metrics": {"FAA": faa, "CAA": (90 + faa) / 2, "FM": 90 - faa, "BWT": faa - 90},
        "after_task": [
            {"task": 0, "average": 90.0, "new_classes": 90.0, "task_inference": None},
            {"task": 1, "average": faa, "new_classes": faa, "task_inference": None},
        ],
        "parameters": {"prompts": 1000, "routers": 200, "head": 40},
        "timings": [
            {"task": 0, "phase": "wtp", "seconds": 36.0, "images": 8},
            {"task": 0, "phase": "evaluate", "seconds": 7.0, "images": 4},
        ],
        "diagnostics": [],
        "usage": [[6, 2], [2, 6]],
        "versions": {},
        "passes": {"prompted+grad": 16},
    } | changes


def draw_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw one figure only, which takes less time."""
    from hashprompt.paper import figures

    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name]})


def write_ledger(
    folder: Path, names: list[str], faa: Numbers, setting: Setting = NANO, **changes: Any
) -> Path:
    """Entries of all runs of tables; `faa` is called with e.g. `T5 MoE` and the seed."""
    for run in runs_of(names, setting):
        value = faa(run.row, run.plan.seed)
        further = {name: {"average": value} for name in run.evaluate}
        found = result_of(run.plan, value, **{"evaluations": further, **changes})
        Ledger(folder).write(run.digest, found)
    return folder
