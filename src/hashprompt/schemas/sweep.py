"""The files of a sweep's folder."""

from typing import Annotated

from pydantic import Field

from hashprompt.schemas.run import StoredPlan
from hashprompt.storage.schema import Count, Schema, Values

Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
MOST_CELLS = 100_000


class StoredCell(Schema):
    """A cell of the grid: which row of the table it belongs to, and its run."""

    row: str
    digest: Digest
    plan: StoredPlan
    ask: dict[str, Values] = Field(default_factory=dict)


class StoredSweep(Schema):
    """`sweep.json`: the grid that was run last."""

    cells: Annotated[list[StoredCell], Field(max_length=MOST_CELLS)]


class CellProgress(Schema):
    """`progress/DIGEST.json`: where a cell stands that somebody works on."""

    where: str  # machine and process
    started: float  # seconds since 1970, as the next
    updated: float
    first_task: Count  # where it began, or went on from
    tasks: Count
    task: Count
    phase: str
    done: Count  # steps of the phase
    steps: Count


class CellFailure(Schema):
    """`failed/DIGEST.json`: why a cell has no result."""

    error: str
    traceback: str
    attempts: Count
