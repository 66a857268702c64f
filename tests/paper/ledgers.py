"""Ledgers made by hand: results of the runs of a table, with values that a test chooses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_results import run_result

from hashprompt.paper.grids import Setting, runs_of
from hashprompt.report.ledger import Ledger
from hashprompt.runs.plan import Plan

Numbers = Callable[[str, int], float]  # (row with its table, seed) -> FAA
NANO = Setting("nano")
MINI = Setting("mini", "npz:/somewhere/birds.npz", "nano")


def result_of(plan: Plan, faa: float, **changes: Any) -> dict[str, Any]:
    return run_result(plan.to_dict(), faa, **changes)


def draw_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports draw one figure only, which takes less time."""
    from hashprompt.paper import report

    monkeypatch.setattr(report, "FIGURES", {name: report.FIGURES[name]})


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
