"""What every log is given, whatever it makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

LOGS = "logs"  # folder of a run directory
NUMBERED_BY = {"steps": "step", "tasks": "task", "final": "task"}  # what counts a table's rows


@dataclass(frozen=True)
class Row:
    """What is logged at one point of a run.

    Args:
        table: `steps` of training, `tasks` that were tested, or the `final` metrics.
        number: of the step or task, from 1; the same when a killed run comes to this point again.
        about: what the row belongs to.
        values: None where there is none.
    """

    table: Literal["steps", "tasks", "final"]
    number: int
    about: Mapping[str, str | int]
    values: Mapping[str, float | None]

    def scalars(self) -> dict[str, float]:
        """Values by names of their own: `tasks/average`, and by phase `steps/prompts/loss`."""
        group = f"{self.table}/{self.about['phase']}" if "phase" in self.about else self.table
        return {f"{group}/{k}": v for k, v in self.values.items() if v is not None}


class Log:
    """Where rows go.

    A run that was killed goes on from its checkpoint, and its log may be ahead of that. So the
    first row of a table may have a number that is there already: this row and those after it must
    not be there twice.

    Args:
        run_dir: of the run; logs are below `LOGS` in it.
        options: of the run, with its method, stream, backbone and seed.
    """

    package: ClassVar[str | None] = None  # has to be installed
    files: ClassVar[tuple[str, ...]]  # that it leaves below `LOGS`, as patterns

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def write(self, row: Row) -> None:
        raise NotImplementedError

    def close(self, finished: bool) -> None:
        """The run is finished, or cut off and may go on later."""
