"""Runs and commands as tests use them: what the fixtures of `conftest.py` give."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hashprompt.runs import benchmark

# Two steps an epoch, so that a run can be cut off inside one.
QUICK = {"tasks": 3, "epochs": 2, "batch_size": 8, "tii_epochs": 2, "align_epochs": 2}


class PowerCut(BaseException):
    """Nothing may catch it and tidy up."""


TinyRun = Callable[..., benchmark.Result]


class CommandResult(NamedTuple):
    """What a command left behind: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error on one line."""
        return " ".join(self.err.split())


Cli = Callable[..., CommandResult]


def decisive(result: benchmark.Result) -> dict[str, Any]:
    """Everything in a result that must not depend on interruptions: all but the clock."""
    names = ("accuracy", "metrics", "after_task", "diagnostics", "usage", "passes", "parameters")
    return {name: result.data[name] for name in names}


def state_of(task: int) -> dict[str, Any]:
    """The state of a checkpoint before the first phase of a task."""
    return {
        "position": {"task": task, "phase": -1, "epoch": 0, "step": 0},
        "log": {"accuracy": [], "after_task": [], "diagnostics": [], "timings": []},
        "passes": {},
        "precision": {},
    }
