"""The contract every method meets."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.errors import UserError
from hashprompt.methods.config import MethodConfig, MethodInfo
from hashprompt.methods.phase import (
    Batch,
    Losses,
    ParamGroup,
    Phase,
    StepRecord,
    StepResult,
    learning_rate_factor,
)
from hashprompt.methods.registry import register
from hashprompt.parts.gaussians import StoredClasses

__all__ = [
    "Batch",
    "Losses",
    "Method",
    "MethodConfig",
    "MethodInfo",
    "ParamGroup",
    "Phase",
    "Prediction",
    "StepRecord",
    "StepResult",
    "TaskView",
    "blocks_of",
    "learning_rate_factor",
    "register",
]

# Of stored numbers.
KINDS = ("prompts", "routers", "head", "tii", "statistics", "backbone")
View = Literal["train", "clean"]


class Prediction(NamedTuple):
    """What a method says about images."""

    logits: Tensor  # (B, C) over the classes seen so far
    task: Tensor | None = None  # (B,) inferred task
    first_guess: Tensor | None = None  # (B,) class that task inference would answer
    features: Tensor | None = None  # (B, D) that they stand on, if all images have the same prompts


class TaskView(Protocol):
    """What a method may see of the current task; there is no way to old or test images."""

    index: int
    classes: tuple[int, ...]
    labels: Tensor  # (N,) of the training images

    def features(self) -> Tensor:
        """Plain features (N, D) of the clean view, cached on disk."""

    def map(self, function: Callable[[Tensor], Tensor], view: View = "clean") -> Tensor:
        """`function` over a view in batches, without gradients, joined to (N, …)."""

    def batches(self, size: int, view: View = "clean") -> Iterator[Batch]:
        """All training images in their order, with gradients; on every device all of them."""

    def raw(self, rows: Tensor) -> Tensor:
        """Pixels (n, 3, H, W) uint8 of training images (n,): what a memory may keep.

        Photos of differing sizes come in the size that the ViT sees.
        """

    def see(self, images: Tensor, view: View = "train") -> Tensor:
        """A view (n, 3, S, S) of raw images (n, 3, H, W), such as a memory holds."""


class Method(nn.Module):
    """A continual learner. All its state is in parameters and registered buffers."""

    keeps: tuple[str, ...] = ()  # state (by prefix) whose old rows never change
    # Kinds of stored values with prefixes of their names, `prompts: down up; head: classifier`.
    # The entries of base classes count as well.
    stores: str = ""
    backbone: Backbone
    config: MethodConfig

    def __init__(self, config: MethodConfig, backbone: Backbone) -> None:
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
        """Whether `predict` has a use for plain features that are known already."""
        return True

    def begin_task(self, task: TaskView) -> None:
        """Grow for the new classes, take snapshots."""

    def phases(self, task: TaskView) -> list[Phase]:
        """How to learn the task. Called again on resume: it must not change any state."""
        raise NotImplementedError

    def end_task(self, task: TaskView) -> None:
        """After the last phase, before evaluation."""

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Classify images, whatever task they come from.

        Args:
            images: (B, 3, S, S) clean view.
            plain: (B, D) their plain features, when they are known already.
        """
        raise NotImplementedError

    def accumulators(self) -> list[Tensor]:
        """Buffers to which steps add counts of images; after each step all devices have the sum."""
        return []

    def diagnostics(self, task: TaskView) -> dict[str, float]:
        """Measures of the task just learned, for the log."""
        return {}

    def stored_classes(self, task: int) -> StoredClasses | None:
        """What is kept of the classes of a task, if answers stand on it."""
        return None

    def current_features(self, images: Tensor, task: int) -> Tensor:
        """Features (B, D) of images of a task (B, 3, S, S) that `stored_classes` tells of, now."""
        raise NotImplementedError

    def images_stored(self) -> int:
        """How many images a memory holds."""
        return 0

    def image_bytes(self) -> int:
        """What they take: pixels are the only bytes of a state."""
        return sum(t.numel() for t in self.state_dict().values() if t.dtype == torch.uint8)

    def usage(self) -> list[list[int]] | None:
        """Activations of each expert while each task was trained, (T, N)."""
        return None

    def sizes(self) -> dict[str, int]:
        """Stored numbers by kind: those of `state_dict` under the prefixes of `stores`.

        `prompts` (and what generates or adapts them), `routers` (what selects: routers, keys,
        gates), `head`, `tii` (task inference by a network), `statistics` (of features, of
        gradients), `backbone` (weights of the ViT that were trained, and copies of them).
        Counts, flags and pixels, which are no floating-point numbers, do not count.
        """
        sizes = dict.fromkeys(KINDS, 0)
        kinds = {kind: kind for kind in KINDS}
        for base in reversed(type(self).__mro__):
            for entry in filter(None, base.__dict__.get("stores", "").split(";")):
                kind, _, names = entry.partition(":")
                kinds |= dict.fromkeys(names.split(), kind.strip())
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
