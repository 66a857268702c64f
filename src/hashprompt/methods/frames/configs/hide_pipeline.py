"""Options of the HiDe-Prompt pipeline: task inference, prompts, statistics, aligned head."""

from typing import ClassVar, Literal

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule
from hashprompt.methods.frames.configs.legacy import LegacyBatchwise, LegacyLayout
from hashprompt.parts.variants import Storage


class HeadsConfig(MethodConfig):
    """Class statistics, and the two classifiers that stand on them."""

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
    align_samples: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="pseudo-features per class and epoch; default 5·batch_size",
    )
    shrinkage: float = Field(
        0.95, ge=0, le=1, description="of each class covariance towards the mean covariance"
    )
    ridge: float = Field(
        0.01, gt=0, description="added to the diagonal of a covariance, share of its mean"
    )


class PromptConfig(HeadsConfig):
    """The same, and the training of prompts and head (WTP)."""

    epochs: int = Field(
        50, ge=1, le=1_000_000, description="epochs of prompts and head on each task"
    )
    lr: float = Field(0.03, gt=0, description="learning rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(
        0.1, gt=0, description="learning rate of the head over that of the prompts"
    )
    schedule: Schedule = Field(
        "step", description="of the learning rate; `step` divides it by ten every 30 epochs"
    )
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] | None = Field(
        (1, 2, 3, 4, 5), description="prompted blocks, 1 is the first; null: all"
    )
    contrastive: float = Field(0.1, ge=0, description="λ, weight of the contrastive term")
    contrastive_form: Literal["identity", "paper"] = Field(
        "identity", description="bounded form of the public code, or the formula as printed"
    )
    temperature: float = Field(0.8, gt=0, description="τ of the contrastive term")

    def rate(self) -> float:
        """The learning rate of the prompts, scaled."""
        return self.lr * self.batch_size / 256


class TaskPromptConfig(PromptConfig):
    """The same with a prompt for every task."""

    main: ClassVar[tuple[str, ...]] = (
        *("batch_size", "epochs", "lr", "layers", "prompt_length", "momentum", "contrastive"),
    )
    legacy_kv_layout: LegacyLayout = False
    batchwise_prompt: LegacyBatchwise = False
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) per prompt")
    momentum: float = Field(
        0.01, ge=0, le=1, description="m: share of the mean of earlier prompts in a new one"
    )
