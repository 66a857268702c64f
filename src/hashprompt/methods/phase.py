"""A phase: one stage of learning a task, as a value. The engine carries it out."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from hashprompt.methods.kinds import Optimizer, Schedule

Losses = dict[str, Tensor]  # by name; their sum is minimised


class Batch(NamedTuple):
    """Training input: images (B, 3, S, S) or features (B, D), with labels (B,)."""

    inputs: Tensor
    labels: Tensor
    plain: Tensor | None = None  # (B, D) features of the clean images, where a phase asks for them


class StepResult(NamedTuple):
    """What a step found, for phases that need to know more than the losses."""

    losses: Losses
    context: Any = None  # for `Phase.update`
    outputs: Tensor | None = None  # (B, …) of the batch, for `Phase.record`


class StepRecord(NamedTuple):
    """The images of a step that was taken: of the whole batch, on every device alike."""

    rows: Tensor  # (B,) among the images of the task
    epoch: int
    outputs: Tensor | None  # (B, …) what the step gave


@dataclass(frozen=True)
class ParamGroup:
    """Parameters that are trained alike. The engine hands the optimiser a copy."""

    params: tuple[nn.Parameter, ...]
    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))  # a list could change later


@dataclass(frozen=True)
class Phase:
    """One stage of learning a task. With `work` it is a computation, else it trains.

    Nothing a run does changes a phase, so two phases may share parameter groups.

    Args:
        name: unique within the task, for progress and timings.
        work: the computation.
        step: losses of a batch.
        groups: what is trained, and how fast.
        epochs: how often all batches are seen.
        batch_size: images of a batch.
        view: what of the images is seen: augmented, clean, or cached plain features.
        plain: batches of images also bring the cached plain features of the same images.
        rows: of the task's images that are seen, (n,); default: all.
        views: how often a step sees each image, in a train view of its own each time: its inputs
            are then (views·B, …), one view of all images after the other.
        draw: the batches of an epoch, instead of a view.
        optimizer: sgd has momentum 0.9.
        schedule: factor of the rate, by name or as a function of (epoch, epochs).
        schedule_per: the factor changes with every epoch, or with every step: the function is
            then given fractions of epochs.
        warm_up: epochs in which the rate rises to its full size, a little with each step; the
            schedule begins after them.
        clip: largest gradient norm.
        update: entered after the backward pass with the step's context, left after the
            optimiser's step: what changes gradients before it or parameters after it.
        seed_key: random seeds derive from it; default: the name. It keeps results the same when a
            phase is renamed.
        record: called after a step on a view with the images it was taken on; for memories. The
            same chance on all devices, so that they remember the same.
    """

    name: str
    work: Callable[[], None] | None = None
    step: Callable[[Batch], Losses | StepResult] | None = None
    groups: Sequence[ParamGroup] = ()
    epochs: int = 0
    batch_size: int = 0
    view: Literal["train", "clean", "features"] = "train"
    plain: bool = False
    rows: Tensor | None = None
    views: int = 1
    draw: Callable[[], list[Batch]] | None = None
    optimizer: Optimizer = "adam"
    schedule: Schedule | Callable[[float, float], float] = "constant"
    schedule_per: Literal["epoch", "step"] = "epoch"
    warm_up: float = 0.0
    clip: float | None = None
    update: Callable[[Any], AbstractContextManager[None]] | None = None
    record: Callable[[StepRecord], None] | None = None
    seed_key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "seed_key", self.seed_key or self.name)
        if (self.work is None) == (self.step is None):
            raise ValueError(f"Phase {self.name}: give either `work` or `step`.")
        if self.step is not None and self.draw is None and self.batch_size < 1:
            raise ValueError(f"Phase {self.name}: `step` needs a batch_size, or `draw`.")
        if self.record is not None and self.draw is not None:
            raise ValueError(f"Phase {self.name}: `record` is for images of the task, not `draw`.")

    def rate_factor(self, epoch: int, step: int, steps: int) -> float:
        """The rate at a step over the full rate."""
        now = epoch + step / steps
        if now < self.warm_up:
            return (now + 1 / steps) / (self.warm_up + 1 / steps)
        at = now if self.schedule_per == "step" else float(epoch)
        begun = max(0.0, at - self.warm_up)
        return learning_rate_factor(self.schedule, begun, self.epochs - self.warm_up)


def learning_rate_factor(
    schedule: Schedule | Callable[[float, float], float], epoch: float, epochs: float
) -> float:
    """The rate of an epoch over the initial rate."""
    if callable(schedule):
        return schedule(epoch, epochs)
    if schedule == "coda":  # CODA-Prompt's cosine: almost zero in the last epoch
        return math.cos(0.495 * math.pi * epoch / max(epochs - 1, 1))
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))
    if schedule == "step":
        return 0.1 ** (epoch // 30)
    return 1.0
