"""The interface of logs, and what a log stores about itself between two parts of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, read_json, write_json
from hashprompt.storage.schema import Count, Schema

LOGS = "logs"  # folder of a run directory
NUMBERED_BY = {"steps": "step", "tasks": "task", "final": "task"}  # number of a table's rows


@dataclass(frozen=True)
class Row:
    """Values at one point of a run.

    Args:
        table: `steps` of training, `tasks` that were tested, or the `final` metrics.
        number: of the step or task, from 1; a resumed run repeats numbers.
        about: task, phase and epoch of the row.
        values: None where there is none.
    """

    table: Literal["steps", "tasks", "final"]
    number: int
    about: Mapping[str, Any]
    values: Mapping[str, float | None]

    def scalars(self) -> dict[str, float]:
        """Values with full names: `tasks/average`, and by phase `steps/prompts/loss`."""
        group = f"{self.table}/{self.about['phase']}" if "phase" in self.about else self.table
        return {f"{group}/{k}": v for k, v in self.values.items() if v is not None}


class Log:
    """Receives the rows of a run.

    A killed run resumes from its checkpoint, and its log may be ahead of that. So the first row of
    a table may have a number that exists already: a log must not contain this row and the rows
    after it twice.

    Args:
        run_dir: of the run; logs are below `LOGS` in it.
        options: of the run, with its method, stream, backbone and seed.
    """

    package: ClassVar[str | None] = None  # required package
    files: ClassVar[tuple[str, ...]]  # of the log below `LOGS`, as patterns

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        """Start or continue the log of a run."""

    def write(self, row: Row) -> None:
        """Add a row."""

    def close(self, finished: bool) -> None:
        """The run is finished, or was interrupted and may resume later."""


class LogState(Schema):
    """`logs/NAME.json`: the run of MLflow or Weights & Biases, and the last row of each table."""

    run: Annotated[str, Field(pattern="^[0-9a-zA-Z_-]{1,128}$")]
    last: dict[str, Count] = Field(default_factory=dict)


def save_state(run_dir: Path, name: str, state: Mapping[str, Any]) -> None:
    write_json(inside(run_dir, LOGS, f"{name}.json"), state)


def saved_state(run_dir: Path, name: str) -> dict[str, Any]:
    """The saved state; empty at the start of a run, or if the file is damaged."""
    try:
        return read_json(inside(run_dir, LOGS, f"{name}.json"), LogState, "")
    except (FileNotFoundError, DamagedError):
        return {}
