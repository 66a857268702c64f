"""What engines are given and what they tell: jobs in, outcomes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Job:
    """A cell that is to be run; all of it can be sent to another machine as JSON."""

    folder: str  # of the sweep: a path, or a URI
    digest: str
    plan: dict[str, Any]
    ask: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `Grid.ask`
    log: Sequence[str] = ()  # names of loggers


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a job ended.

    `refused` is bad input, which another attempt would not mend; `stopped` was asked for.
    """

    kind: Literal["done", "refused", "failed", "stopped"]
    error: str = ""
    traceback: str = ""

    @property
    def may_be_retried(self) -> bool:
        return self.kind == "failed"


Tell = Callable[[Job, Outcome, int], None]  # after the last attempt, of which there were so many
