"""Schemas of the results so far, and of the state of a run on disk. Imports no torch."""

from typing import Annotated

from pydantic import Field

from hashprompt.storage.schema import (
    MAX_TASKS,
    Accuracy,
    Count,
    Index,
    Percent,
    Schema,
    Seconds,
    Sha256,
    Values,
)

Share = Annotated[float, Field(ge=-0.01, le=1.01)]  # rounding may leave shares a bit off


class AfterTask(Schema):
    """Accuracies after one task, in percent."""

    task: Index
    average: Percent
    new_classes: Percent | None = None
    task_inference: Percent | None = None


class Diagnostics(Schema):
    """Means over the training of one task."""

    task: Index
    routing_entropy: Annotated[float, Field(ge=0)] | None = None
    routing_varies: Share | None = None
    routing_by_class: Share | None = None
    favourite_share: Share | None = None
    usage_entropy: Share | None = None
    entropy_by_difficulty: Annotated[float, Field(ge=-1, le=1)] | None = None
    drift: Annotated[float, Field(ge=0)] | None = None  # of old class means, in σ


class Timing(Schema):
    """One phase of one task."""

    task: Index
    phase: str
    seconds: Seconds
    cpu_seconds: Seconds | None = None  # in which the process had a processor
    images: Count


class RunLog(Schema):
    """Results so far; `accuracy[i][t]` is task i after task t."""

    accuracy: Accuracy
    after_task: Annotated[list[AfterTask], Field(max_length=MAX_TASKS)]
    diagnostics: list[Diagnostics]
    timings: list[Timing]


class Position(Schema):
    """Position of a run: the next step is `step` of `epoch` of `phase` of `task`."""

    task: Index = 0
    phase: Annotated[int, Field(ge=-1, lt=1000)] = -1  # -1: the task has not started
    epoch: Count = 0
    step: Count = 0


class StoredState(Schema):
    """`checkpoints/state-N.json`, next to the tensors with the same number."""

    position: Position
    steps: Count = 0  # training steps of the run so far
    log: RunLog
    passes: dict[str, Count]
    precision: Values
    tensors_sha256: Sha256
