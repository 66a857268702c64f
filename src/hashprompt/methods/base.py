"""The contract of every method: what it may see, its phases, and what it predicts."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from typing_extensions import TypeVar  # with defaults, as in Python 3.13

from hashprompt.backbone import Backbone
from hashprompt.errors import UserError
from hashprompt.methods.config import MethodConfig, MethodInfo
from hashprompt.methods.kinds import Optimizer, Schedule
from hashprompt.parts.gaussians import StoredClasses

# Kinds of stored values.
KINDS = ("prompts", "routers", "head", "tii", "statistics", "backbone")
View = Literal["train", "clean"]
C = TypeVar("C", bound=MethodConfig, default=Any)
Losses = dict[str, Tensor]  # by name; their sum is minimised
Decay = Callable[[float, float], float]  # (epoch, epochs) -> factor of the learning rate


class Batch(NamedTuple):
    """Training input: images (B, 3, S, S) or features (B, D), with labels (B,)."""

    inputs: Tensor
    labels: Tensor


class StepResult(NamedTuple):
    """The result of a step, for phases that need more than the losses."""

    losses: Losses
    context: Any = None  # for `Phase.update`
    outputs: Tensor | None = None  # (B, …) of the batch, for `Phase.record`


class StepRecord(NamedTuple):
    """The images of a finished step: of the whole batch, the same on every device."""

    rows: Tensor  # (B,) among the images of the task
    epoch: int
    outputs: Tensor | None  # (B, …) of the step


@dataclass(frozen=True)
class ParamGroup:
    """Parameters with the same learning rate. The engine hands the optimiser a copy."""

    params: Iterable[nn.Parameter]
    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))  # lists could change


@dataclass(frozen=True)
class Phase:
    """One stage of learning a task, as a value. With `work` it is a computation, else it trains.

    Nothing in a run changes a phase, so two phases may share parameter groups.

    Args:
        name: unique within the task, for progress and timings.
        work: the computation.
        step: losses of a batch.
        groups: trained parameters and their learning rates.
        epochs: passes over all batches.
        batch_size: images of a batch.
        view: augmented images, clean images, or cached frozen features.
        rows: the images of the task that are used, (n,); default: all.
        views: augmented views of each image in a step: the inputs are then (views·B, …), one view
            of all images after the other.
        draw: the batches of an epoch, instead of a view.
        optimizer: sgd has momentum 0.9.
        schedule: factor of the learning rate, by name or as a function of (epoch, epochs).
        schedule_per: the factor changes with every epoch, or with every step: the function then
            gets fractions of epochs.
        clip: maximum gradient norm.
        update: entered after the backward pass with the step's context, left after the
            optimiser's step: it may change gradients before or parameters after that step.
        seed_key: random seeds derive from it; default: the name. It keeps results the same when a
            phase is renamed.
        record: called after a step on a view with the images of the step; for memories. Random
            numbers in it are the same on all devices, so all devices store the same images.
    """

    name: str
    work: Callable[[], None] | None = None
    step: Callable[[Batch], Losses | StepResult] | None = None
    groups: Sequence[ParamGroup] = ()
    epochs: int = 0
    batch_size: int = 0
    view: Literal["train", "clean", "features"] = "train"
    rows: Tensor | None = None
    views: int = 1
    draw: Callable[[], list[Batch]] | None = None
    optimizer: Optimizer = "adam"
    schedule: Schedule | Decay = "constant"
    schedule_per: Literal["epoch", "step"] = "epoch"
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
        """The learning rate at a step over the full rate."""
        at = epoch + step / steps if self.schedule_per == "step" else float(epoch)
        return learning_rate_factor(self.schedule, at, self.epochs)


def training_phase(
    config: MethodConfig,
    step: Callable[[Batch], Losses | StepResult],
    *groups: ParamGroup,
    name: str = "train",
    **changes: Any,
) -> Phase:
    """Training by the options of a config: epochs, batch size, optimiser, schedule and clipping.

    Args:
        changes: fields of the phase that differ from the options.
    """
    fields = ("epochs", "batch_size", "optimizer", "schedule", "clip")
    options = {field: getattr(config, field) for field in fields if hasattr(config, field)}
    return Phase(name, step=step, groups=groups, **{**options, **changes})


def learning_rate_factor(schedule: Schedule | Decay, epoch: float, epochs: float) -> float:
    """The learning rate of an epoch over the initial rate."""
    if callable(schedule):
        return schedule(epoch, epochs)
    if schedule == "coda":  # CODA-Prompt's cosine: almost zero in the last epoch
        return math.cos(0.495 * math.pi * epoch / max(epochs - 1, 1))
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))
    if schedule == "step":
        return 0.1 ** (epoch // 30)
    return 1.0


class Prediction(NamedTuple):
    """The predictions of a method for images."""

    logits: Tensor  # (B, C) over the classes seen so far
    task: Tensor | None = None  # (B,) inferred task
    first_guess: Tensor | None = None  # (B,) class predicted by task inference
    features: Tensor | None = None  # (B, D) behind the logits, if all images have the same prompts


class TaskView(Protocol):
    """What a method may see of the current task; there is no way to old or test images."""

    index: int
    classes: tuple[int, ...]
    labels: Tensor  # (N,) of the training images

    def features(self) -> Tensor:
        """Frozen features (N, D) of the clean view, cached on disk."""

    def map(self, function: Callable[[Tensor], Tensor], view: View = "clean") -> Tensor:
        """`function` over a view in batches, without gradients, joined to (N, …)."""

    def batches(self, size: int, view: View = "clean") -> Iterator[Batch]:
        """All training images in their order, with gradients; on every device all of them."""

    def raw(self, rows: Tensor) -> Tensor:
        """Pixels (n, 3, H, W) uint8 of training images (n,), for a memory.

        Photos of differing sizes come in the size that the ViT sees.
        """

    def see(self, images: Tensor, view: View = "train") -> Tensor:
        """A view (n, 3, S, S) of raw images (n, 3, H, W), such as a memory holds."""


class Method(nn.Module, Generic[C]):
    """A continual-learning method. All its state is in parameters and registered buffers."""

    keeps: tuple[str, ...] = ()  # prefixes of state names whose old rows never change
    # Kinds of stored values with prefixes of their names, `prompts: down up; head: classifier`.
    # The entries of base classes count as well.
    stores: str = ""
    backbone: Backbone
    config: C

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        # Not a submodule: the frozen ViT is no part of what a method saves.
        self.__dict__["backbone"] = backbone

    @property
    def info(self) -> MethodInfo:
        return self.config.info

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device

    @property
    def asks_plain(self) -> bool:
        """Whether `predict` uses frozen features that are known already."""
        return True

    def begin_task(self, task: TaskView) -> None:
        """Grow for the new classes, take snapshots."""

    def phases(self, task: TaskView) -> list[Phase]:
        """How to learn the task. Called again on resume: it must not change any state."""
        raise NotImplementedError

    def end_task(self, task: TaskView) -> None:
        """After the last phase, before evaluation."""

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Classify images of any task.

        Args:
            images: (B, 3, S, S) clean view.
            plain: (B, D) their frozen features, when they are known already.
        """
        raise NotImplementedError

    def accumulators(self) -> list[Tensor]:
        """Buffers to which steps add counts of images; after each step all devices have the sum."""
        return []

    def diagnostics(self, task: TaskView) -> dict[str, float]:
        """Measures of the task just learned, for the log."""
        return {}

    def stored_classes(self, task: int) -> StoredClasses | None:
        """The stored statistics of the classes of a task, if predictions use them."""
        return None

    def current_features(self, images: Tensor, task: int) -> Tensor:
        """Today's features (B, D) of images (B, 3, S, S) of a task with `stored_classes`."""
        raise NotImplementedError

    def images_stored(self) -> int:
        """Number of images in the memory: pixels are the only bytes of a state."""
        return sum(len(t) for t in self.state_dict().values() if t.dtype == torch.uint8)

    def image_bytes(self) -> int:
        """Size of the stored images."""
        return sum(t.numel() for t in self.state_dict().values() if t.dtype == torch.uint8)

    def usage(self) -> list[list[int]] | None:
        """Activations of each expert while each task was trained, (T, N)."""
        return None

    def sizes(self) -> dict[str, int]:
        """Number of stored values by kind: those of `state_dict` under the prefixes of `stores`.

        `prompts` (with generators and adapters), `routers` (with keys and gates), `head`, `tii`
        (task inference by a network), `statistics` (of features, of gradients), `backbone`
        (trained weights of the ViT, and copies of them). A prefix that is a kind needs no entry.
        Only floating-point values count: no counts, flags or pixels.
        """
        kinds = {kind: kind for kind in KINDS}
        for base in reversed(type(self).__mro__):
            for entry in filter(None, base.__dict__.get("stores", "").split(";")):
                kind, names = map(str.strip, entry.split(":"))
                if kind not in KINDS:
                    raise ValueError(f"`stores` has the kind `{kind}`. Kinds: {', '.join(KINDS)}.")
                kinds |= dict.fromkeys(names.split(), kind)
        sizes = dict.fromkeys(KINDS, 0)
        for name, tensor in self.state_dict().items():
            for prefix, kind in kinds.items():
                if f"{name}.".startswith(f"{prefix}.") and tensor.is_floating_point():
                    sizes[kind] += tensor.numel()
        return sizes


def blocks_of(layers: tuple[int, ...] | None, backbone: Backbone) -> list[int]:
    """0-based blocks for the option `layers`, which counts from 1; all of them for None."""
    if layers is None:
        return list(range(backbone.depth))
    if not all(1 <= layer <= backbone.depth for layer in layers):
        raise UserError(f"layers={list(layers)}: this backbone has blocks 1–{backbone.depth}.")
    return [layer - 1 for layer in layers]
