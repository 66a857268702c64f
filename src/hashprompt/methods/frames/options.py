"""Options that methods of a frame share. Nothing here imports torch."""

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hashprompt.methods.config import (
    BatchSize,
    Clip,
    Epochs,
    Layers,
    MethodConfig,
    MethodInfo,
    PromptLength,
    Ridge,
    Samples,
    ScaleLR,
    Schedule,
    Shrinkage,
    WeightDecay,
)
from hashprompt.parts.variants import Distance, Storage

# Two leaks of the public code (`parts/legacy.py`), off unless they are asked for.
SWITCHES = ("legacy_kv_layout", "batchwise_prompt")
LegacyLayout = Annotated[
    bool, Field(description="give images the prefixes of their neighbours, as the public code does")
]
LegacyBatchwise = Annotated[
    bool, Field(description="all images of a batch get the prompts that most of them chose")
]


class HeadsConfig(MethodConfig):
    """The HiDe-Prompt pipeline: class statistics, and the two classifiers that stand on them."""

    info = MethodInfo(family="statistics")
    statistics: Storage = Field(
        "covariance",
        description="what is stored of each class beside its mean; pooled: one covariance for the "
        "classes of a task",
    )
    tii: Literal["sgd", "discriminant"] = Field(
        "sgd", description="task inference: a trained head, or a discriminant of the Gaussians"
    )
    tii_target: Literal["class", "task"] = Field(
        "class", description="what task inference predicts; a class is mapped to its task"
    )
    tii_epochs: int = Field(20, ge=0, le=1_000_000, description="epochs of the task-inference head")
    tii_lr: float = Field(5e-4, gt=0, description="its learning rate, times batch_size/256")
    tii_align_lr: float = Field(
        0.005, gt=0, description="learning rate of its alignment, times batch_size/256"
    )
    align: Literal["sgd", "discriminant"] = Field(
        "sgd", description="final head: TAP-trained, or a discriminant of the Gaussians"
    )
    align_epochs: int = Field(30, ge=0, le=1_000_000, description="epochs of both alignments")
    align_lr: float = Field(0.005, gt=0, description="learning rate of the final head's alignment")
    align_samples: Samples | None = Field(
        None, description="pseudo-features per class and epoch; default 5·batch_size"
    )
    shrinkage: Shrinkage = 0.95
    ridge: Ridge = 0.01


class PromptConfig(HeadsConfig):
    """The HiDe-Prompt pipeline with prompts: their training and that of the head (WTP)."""

    info = MethodInfo(family="prompts")
    epochs: Epochs = 50
    lr: float = Field(0.03, gt=0, description="learning rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(
        0.1, gt=0, description="learning rate of the head over that of the prompts"
    )
    schedule: Schedule = "step"
    clip: Clip = 1.0
    layers: Layers = (1, 2, 3, 4, 5)
    contrastive: float = Field(0.1, ge=0, description="λ, weight of the contrastive term")
    contrastive_form: Literal["identity", "paper"] = Field(
        "identity", description="bounded form of the public code, or the formula as printed"
    )
    temperature: float = Field(0.8, gt=0, description="τ of the contrastive term")

    def rate(self) -> float:
        """The learning rate of the prompts, scaled."""
        return self.lr * self.batch_size / 256


class TaskPromptConfig(PromptConfig):
    """The HiDe-Prompt pipeline with a prompt for every task."""

    main: ClassVar[tuple[str, ...]] = (
        *("batch_size", "epochs", "lr", "layers", "prompt_length", "momentum", "contrastive"),
    )
    legacy_kv_layout: LegacyLayout = False
    batchwise_prompt: LegacyBatchwise = False
    prompt_length: PromptLength = 20
    momentum: float = Field(
        0.01, ge=0, le=1, description="m: share of the mean of earlier prompts in a new one"
    )


class TuningConfig(MethodConfig):
    """Prompts and one linear head trained together, with what differs among repositories."""

    info = MethodInfo(family="prompts")
    epochs: Epochs = 50
    lr: float = Field(0.03, gt=0, description="rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(1.0, gt=0, description="rate of the head over that of prompts")
    schedule: Schedule = "constant"
    clip: Clip = 1.0
    scale_lr: ScaleLR = True
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="sgd has momentum 0.9")
    weight_decay: WeightDecay = 0.0

    def rate(self) -> float:
        """The rate of the prompts in use."""
        return self.lr * self.batch_size / 256 if self.scale_lr else self.lr


class KeyedConfig(TuningConfig):
    """Prompts found by learned keys, and their training."""

    batchwise_prompt: LegacyBatchwise = False
    lr: float = Field(0.005, gt=0, description="rate of what is trained, times batch_size/256")
    pull: float = Field(
        1.0, ge=0, description="c: how strongly keys are drawn to the images that use them"
    )
    init_range: tuple[float, float] = Field(
        (-1.0, 1.0), description="prompts and keys start uniformly between these"
    )


class DomainConfig(TuningConfig):
    """A token prompt for every domain, and its training."""

    info = MethodInfo(family="prompts", scenarios=("domain",))
    epochs: Epochs = Field(20, description="epochs on each domain")
    lr: float = Field(0.01, gt=0, description="rate of the prompt")
    scale_lr: ScaleLR = False
    optimizer: Literal["adam", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    schedule: Schedule = "cosine"
    weight_decay: WeightDecay = 2e-4
    clip: Clip = None
    prompt_length: PromptLength = Field(10, description="tokens of a domain's prompt")
    centroids: int = Field(
        5, ge=1, le=10_000, description="k-means centres by which a domain is known"
    )
    distance: Distance = Field(
        "l1", description="to the centroids: sum of absolute differences, or Euclidean"
    )


class FirstSessionConfig(MethodConfig):
    """Adaptation of the backbone to the first task."""

    info = MethodInfo(family="first-task adaptation")
    batch_size: BatchSize = 48
    epochs: Epochs = Field(20, description="epochs of the first session")
    lr: float = Field(0.01, gt=0, description="its rate, falling to zero as a cosine")
    weight_decay: WeightDecay = Field(5e-4, description="its weight decay")


class WholeConfig(TuningConfig):
    """Training of the ViT (or a part of it) and a linear head."""

    info = MethodInfo(family="regularisation")
    epochs: Epochs = 5
    lr: float = Field(0.03, gt=0, description="rate of the ViT, times batch_size/256")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("sgd", description="sgd has momentum 0.9")
    trainable: Literal["all", "last", "norms", "biases", "head"] = Field(
        "all",
        description="weights of the ViT that are trained; `biases`: these, norms and the class "
        "token; `head`: none",
    )
    last_blocks: int = Field(
        1, ge=1, le=10_000, description="how many blocks train with trainable=last"
    )


class AlignedConfig(WholeConfig):
    """Training of the network on a task, then of the head on samples of class Gaussians."""

    info = MethodInfo(family="drift compensation")
    scale_lr: ScaleLR = False
    clip: Clip = None
    align_epochs: Epochs = Field(5, description="epochs of aligning the head")
    align_lr: float = Field(0.01, gt=0, description="rate of aligning the head")
    align_samples: Samples = 256
    align_weight_decay: WeightDecay = Field(5e-4, description="of the head that is aligned")


class BufferOptions(MethodConfig):
    """A memory of images."""

    buffer_per_class: int = Field(
        50, ge=0, le=1_000_000, description="images of each class that are kept"
    )
    buffer_total: int = Field(
        0, ge=0, le=100_000_000, description="images that are kept in all, instead of per class"
    )
    replay_batch: int | None = Field(
        None, ge=1, le=65_536, description="kept images beside a whole batch; default: batch_size"
    )

    def keeps_images(self) -> str:
        """How many images of old tasks are kept, in words."""
        if self.buffer_total:
            return f"{self.buffer_total:,} in all"
        return f"{self.buffer_per_class:,} per class" if self.buffer_per_class else ""

    def replays(self, new: int) -> int:
        """Kept images beside so many new ones, fewer in the smaller batch of one device of many."""
        return math.ceil((self.replay_batch or self.batch_size) * new / self.batch_size)


class RehearsalConfig(BufferOptions, WholeConfig):
    """Training of the ViT on new images and kept ones."""

    info = MethodInfo(family="rehearsal", keeps_images=True)

    @model_validator(mode="after")
    def _keeps_some(self) -> "RehearsalConfig":
        if not self.keeps_images():
            raise ValueError(
                "this method learns from images that it keeps: set buffer_per_class or "
                "buffer_total to at least 1"
            )
        return self
