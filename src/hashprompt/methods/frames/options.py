"""Options that the methods of a frame share. Nothing here imports torch."""

import math
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from hashprompt.methods import kinds
from hashprompt.methods.config import MethodConfig, MethodInfo

# Two leaks of the public code (`parts/legacy.py`), off by default.
SWITCHES = ("legacy_kv_layout", "batchwise_prompt")


class HeadsConfig(MethodConfig):
    """The HiDe-Prompt pipeline: class statistics, task inference (TII) and the final head (TAP).

    Args:
        tii: task inference by a trained head, or by a discriminant of the Gaussians
        tii_target: what task inference predicts; a class is mapped to its task
        tii_epochs: epochs of the task-inference head
        tii_lr: learning rate of the task-inference head, times batch_size/256
        tii_align_lr: learning rate of aligning the task-inference head, times batch_size/256
        align: final head: aligned on pseudo-features (TAP), or a discriminant of the Gaussians
        align_epochs: epochs of both alignments
        align_lr: learning rate of aligning the final head
        align_samples: pseudo-features per class and epoch; default 5·batch_size
    """

    info = MethodInfo(family="statistics")
    statistics: kinds.Storage = "covariance"
    tii: Literal["sgd", "discriminant"] = "sgd"
    tii_target: Literal["class", "task"] = "class"
    tii_epochs: kinds.CountOrZero = 20
    tii_lr: kinds.Positive = 5e-4
    tii_align_lr: kinds.Positive = 0.005
    align: Literal["sgd", "discriminant"] = "sgd"
    align_epochs: kinds.CountOrZero = 30
    align_lr: kinds.Positive = 0.005
    align_samples: kinds.Count | None = None
    shrinkage: kinds.Share = 0.95
    ridge: kinds.Positive = 0.01


class PromptConfig(HeadsConfig):
    """The HiDe-Prompt pipeline with prompts: training of prompts and head (WTP).

    Args:
        lr: learning rate of the prompts, times batch_size/256
        head_lr_scale: learning rate of the head, as a factor of that of the prompts
        contrastive: λ, weight of the contrastive term
        contrastive_form: bounded form of the public code, or the formula as printed
        temperature: τ of the contrastive term
    """

    info = MethodInfo(family="prompts")
    epochs: kinds.Count = 50
    lr: kinds.Positive = 0.03
    head_lr_scale: kinds.Positive = 0.1
    schedule: kinds.Schedule = "step"
    clip: kinds.Clip = 1.0
    layers: kinds.Layers = (1, 2, 3, 4, 5)
    contrastive: kinds.NonNegative = 0.1
    contrastive_form: Literal["identity", "paper"] = "identity"
    temperature: kinds.Positive = 0.8

    def rate(self) -> float:
        """The learning rate of the prompts, scaled."""
        return self.lr * self.batch_size / 256


class TaskPromptConfig(PromptConfig):
    """The HiDe-Prompt pipeline with a prompt for every task.

    Args:
        momentum: m, share of the mean of earlier prompts in a new prompt
    """

    main: ClassVar[tuple[str, ...]] = (
        *("batch_size", "epochs", "lr", "layers", "prompt_length", "momentum", "contrastive"),
    )
    legacy_kv_layout: bool = False
    batchwise_prompt: bool = False
    prompt_length: kinds.PromptLength = 20
    momentum: kinds.Share = 0.01


class TuningConfig(MethodConfig):
    """Prompts and one linear head trained together.

    Args:
        lr: learning rate of the prompts, times batch_size/256 with scale_lr
        head_lr_scale: learning rate of the head, as a factor of lr
    """

    info = MethodInfo(family="prompts")
    epochs: kinds.Count = 50
    lr: kinds.Positive = 0.03
    head_lr_scale: kinds.Positive = 1.0
    schedule: kinds.Schedule = "constant"
    clip: kinds.Clip = 1.0
    scale_lr: bool = True
    optimizer: kinds.Optimizer = "adam"
    weight_decay: kinds.NonNegative = 0.0

    def rate(self) -> float:
        """The learning rate in use."""
        return self.lr * self.batch_size / 256 if self.scale_lr else self.lr


class UnscaledTuningConfig(TuningConfig):
    """The same with rates that do not depend on the batch size, and without clipping."""

    epochs: kinds.Count = 20
    clip: kinds.Clip = None
    scale_lr: bool = False


class KeyedConfig(TuningConfig):
    """Prompts found by learned keys.

    Args:
        pull: c, weight of the loss that pulls keys towards the images that use them
        init_range: bounds of the uniform initial values of prompts and keys
    """

    batchwise_prompt: bool = False
    lr: kinds.Positive = 0.005
    pull: kinds.NonNegative = 1.0
    init_range: tuple[float, float] = (-1.0, 1.0)


class TaskKeyConfig(KeyedConfig):
    """A prompt for every task, found by its key."""

    legacy_kv_layout: bool = False
    layers: kinds.Layers = (1, 2, 3, 4, 5)
    prompt_length: kinds.PromptLength = 20


class DomainConfig(UnscaledTuningConfig):
    """A token prompt for every domain.

    Args:
        epochs: epochs on each domain
        prompt_length: tokens of the prompt of a domain
        centroids: k-means centroids of each domain; the sum of absolute differences decides
    """

    info = MethodInfo(family="prompts", scenarios=("domain",))
    lr: kinds.Positive = 0.01
    optimizer: kinds.Optimizer = "sgd"
    schedule: kinds.Schedule = "cosine"
    weight_decay: kinds.NonNegative = 2e-4
    prompt_length: kinds.PromptLength = 10
    centroids: kinds.Count = 5


class FirstSessionConfig(MethodConfig):
    """Adaptation of the backbone to the first task.

    Args:
        epochs: epochs of the first session
        lr: learning rate of the first session, with a cosine schedule
        weight_decay: weight decay of the first session
    """

    info = MethodInfo(family="first-task adaptation")
    batch_size: kinds.BatchSize = 48
    epochs: kinds.Count = 20
    lr: kinds.Positive = 0.01
    weight_decay: kinds.NonNegative = 5e-4


class FinetuningConfig(TuningConfig):
    """Training of the ViT (or a part of it) and a linear head.

    Args:
        lr: learning rate of the ViT, times batch_size/256 with scale_lr
        last_blocks: number of blocks that trainable=last trains
    """

    info = MethodInfo(family="regularisation")
    epochs: kinds.Count = 5
    optimizer: kinds.Optimizer = "sgd"
    trainable: kinds.Trainable = "all"
    last_blocks: kinds.Count = 1


class AlignedConfig(FinetuningConfig):
    """Training of the network on a task, then of the head on samples of class Gaussians.

    Args:
        align_epochs: epochs of aligning the head
        align_lr: learning rate of aligning the head
        align_weight_decay: weight decay of aligning the head
    """

    info = MethodInfo(family="drift compensation")
    epochs: kinds.Count = 20
    clip: kinds.Clip = None
    scale_lr: bool = False
    weight_decay: kinds.NonNegative = 5e-4
    align_epochs: kinds.Count = 5
    align_lr: kinds.Positive = 0.01
    align_samples: kinds.Count = 256
    align_weight_decay: kinds.NonNegative = 5e-4


class BufferOptions(MethodConfig):
    """A memory of images.

    Args:
        buffer_per_class: stored images of each class
        buffer_total: stored images in total, instead of per class
        replay_batch: stored images next to a full batch of new ones; default: batch_size
    """

    buffer_per_class: kinds.CountOrZero = 50
    buffer_total: kinds.CountOrZero = 0
    replay_batch: kinds.Count | None = None

    def keeps_images(self) -> str:
        """How many images of old tasks are stored, in words."""
        if self.buffer_total:
            return f"{self.buffer_total:,} in all"
        return f"{self.buffer_per_class:,} per class" if self.buffer_per_class else ""

    def replays(self, new: int) -> int:
        """Number of stored images in a batch with `new` new ones (per device)."""
        return math.ceil((self.replay_batch or self.batch_size) * new / self.batch_size)


class RehearsalConfig(BufferOptions, FinetuningConfig):
    """Training of the ViT on new images and stored ones."""

    info = MethodInfo(family="rehearsal", keeps_images=True)

    @model_validator(mode="after")
    def _keeps_some(self) -> Self:
        if not self.keeps_images():
            raise ValueError("set buffer_per_class or buffer_total to at least 1")
        return self


class ChosenExperts(MethodConfig):
    """A pool of experts, of which each image gets a few."""

    @model_validator(mode="after")
    def _has_enough_experts(self) -> Self:
        pool = "prompts" if "prompts" in type(self).model_fields else "experts"
        top_k, size = getattr(self, "top_k", 0), getattr(self, pool, 0)
        if top_k > size:
            raise ValueError(f"top_k={top_k} must not exceed {pool}={size}")
        return self
