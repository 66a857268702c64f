"""The files of a run directory."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hashprompt.storage.schema import (
    MAX_TASKS,
    Accuracy,
    Count,
    Index,
    Pair,
    Percent,
    Schema,
    Seconds,
    Sha256,
    Usage,
    Values,
)

Number = float | None  # also a whole one; None where there was nothing to measure


class StoredPlan(Schema):
    """What a run was asked to do."""

    method: str
    preset: str
    stream: str
    backbone: str
    seed: int
    options: Values


class Protocol(Schema):
    """What decides whether results can be compared; fields are compared as they are."""

    stream: str
    class_order: list[Count]
    class_names: list[str]
    tasks: list[list[Count]]
    images: list[Pair] = Field(default_factory=list)  # to train and to test, of each task
    legacy: list[str]
    keeps_images: str = ""


class RunConfig(StoredPlan):
    """`config.json`."""

    protocol: Protocol


class AfterTask(Schema):
    """Accuracies after one task, in percent."""

    task: Index
    average: Percent
    new_classes: Percent | None = None
    task_inference: Percent | None = None


class Asked(Schema):
    """A finished learner, tested again with other options of prediction."""

    average: Percent
    task_inference: Percent | None = None


class Diagnostics(Schema):
    """Means over the training of one task."""

    task: Index
    routing_entropy: Annotated[float, Field(ge=0)] | None = None
    routing_varies: Annotated[float, Field(ge=-0.01, le=1.01)] | None = None  # rounding may leave
    routing_by_class: Annotated[float, Field(ge=-0.01, le=1.01)] | None = None  # shares a bit off
    favourite_share: Annotated[float, Field(ge=-0.01, le=1.01)] | None = None
    usage_entropy: Annotated[float, Field(ge=-0.01, le=1.01)] | None = None
    drift: Annotated[float, Field(ge=0)] | None = None  # of old class means, in class spreads


class Timing(Schema):
    """One phase of one task."""

    task: Index
    phase: str
    seconds: Seconds
    cpu_seconds: Seconds | None = None  # in which the process had a processor; earlier: not known
    images: Count


class Remark(Schema):
    """What a method had to say after a task."""

    task: Index
    text: str


class Log(Schema):
    """What the engine writes down while it learns; `accuracy[i][t]` is task i after task t."""

    accuracy: Accuracy
    after_task: Annotated[list[AfterTask], Field(max_length=MAX_TASKS)]
    diagnostics: list[Diagnostics]
    timings: list[Timing]
    remarks: Annotated[list[Remark], Field(max_length=MAX_TASKS)] = Field(default_factory=list)


class RunResult(Log):
    """`result.json`."""

    finished: Literal[True]
    config: StoredPlan
    protocol: Protocol
    metrics: dict[str, Number]
    usage: Usage | None
    parameters: Annotated[dict[str, Count], Field(max_length=100)]
    images_stored: Count = 0
    image_bytes: Count = 0
    passes: dict[str, Count]
    versions: dict[str, str]
    asked: dict[str, Asked] = Field(default_factory=dict)  # in a ledger: with other options

    @model_validator(mode="after")
    def _was_tested(self) -> Self:
        rows = {len(row) for row in self.accuracy}
        tested = any(value is not None for row in self.accuracy for value in row)
        if len(rows) != 1 or not tested or not self.after_task:
            raise ValueError("`accuracy` is no table of what was tested after each task")
        return self


class Position(Schema):
    """Where a run stands; phase -1 is before the first one."""

    task: Index
    phase: Annotated[int, Field(ge=-1, lt=1000)]
    epoch: Count
    step: Count


class RunState(Schema):
    """`checkpoints/state-N.json`."""

    position: Position
    steps: Count = 0  # of training, since the run began
    log: Log
    passes: dict[str, Count]
    precision: Values
    tensors_sha256: Sha256


class LogState(Schema):
    """`logs/NAME.json`: the run of MLflow or Weights & Biases, and the last row of each table."""

    run: Annotated[str, Field(pattern="^[0-9a-zA-Z_-]{1,128}$")]
    last: dict[str, Count] = Field(default_factory=dict)
