"""Options of the HiDe-Prompt pipeline: task inference, prompts, statistics, aligned head."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule
from hashprompt.parts.variants import Storage


class HeadsConfig(MethodConfig):
    """Statistics and the two classifiers that live on them."""

    statistics: Storage = Field(
        "covariance",
        description="what is kept of each class beside its mean; pooled: one covariance for the "
        "classes of a task, or for all where they share their prompts; with shrinkage=1 the "
        "same answers as covariance, but a forgotten class leaves its part in it",
    )
    rank: int = Field(16, ge=1, le=10_000, description="directions of low-rank statistics")
    centroids: int = Field(10, ge=1, le=10_000, description="centres of multi-centroid statistics")
    tii: Literal["sgd", "discriminant"] = Field(
        "sgd", description="task inference: trained head, or read off the Gaussians"
    )
    tii_target: Literal["class", "task"] = Field(
        "class", description="what task inference predicts; a class is mapped to its task"
    )
    tii_epochs: int = Field(20, ge=0, le=1_000_000, description="epochs of the task-inference head")
    tii_lr: float = Field(5e-4, gt=0, description="its rate, times batch_size/256")
    tii_align_lr: float = Field(0.005, gt=0, description="rate of its alignment, · batch_size/256")
    second_task: float = Field(
        0.0,
        ge=0,
        le=1,
        description="where the likeliest task has a lower probability than this, the next one "
        "answers too, weighted by theirs; costs those images another pass",
    )
    align: Literal["sgd", "discriminant"] = Field(
        "sgd", description="final head: TAP-trained, or read off the Gaussians"
    )
    align_epochs: int = Field(30, ge=0, le=1_000_000, description="epochs of both alignments")
    align_lr: float = Field(0.005, gt=0, description="rate of the final head's alignment")
    align_samples: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="pseudo-features per class and epoch; default 5·batch_size",
    )
    voters: tuple[Literal["head", "plain"], ...] = Field(
        (),
        description="classifiers whose log-probabilities are added to the final one: the "
        "trained head, the discriminant of plain (or other base) features",
    )
    shrinkage: float = Field(
        0.95, ge=0, le=1, description="of each class covariance towards the mean covariance"
    )
    ridge: float = Field(0.01, gt=0, description="diagonal added to Σ', share of its mean")
    discriminant_temperature: float = Field(
        1.0, gt=0, description="divides the discriminant's distances, and not its log-determinants"
    )


class PromptConfig(HeadsConfig):
    """The same, and the training of prompts and head (WTP)."""

    epochs: int = Field(
        50,
        ge=0,
        le=1_000_000,
        description="epochs of prompts and head on each task; 0: plain features must do",
    )
    lr: float = Field(0.03, gt=0, description="rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(0.1, gt=0, description="rate of the head over that of prompts")
    schedule: Schedule = Field(
        "step", description="of the rate; `step` divides it by ten every 30 epochs"
    )
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] | None = Field(
        (1, 2, 3, 4, 5), description="prompted blocks, 1 is the first; null: all"
    )
    compete: Literal["task", "all"] = Field(
        "task",
        description="what a new image is told from while prompts train: the classes of its task, "
        "or all seen so far, whose rows of the head stay as they were aligned",
    )
    contrastive: float = Field(0.1, ge=0, description="λ, weight of the contrastive term")
    contrastive_form: Literal["identity", "paper"] = Field(
        "identity", description="bounded form of the public code, or the formula as printed"
    )
    temperature: float = Field(0.8, gt=0, description="τ of the contrastive term")

    def rate(self) -> float:
        """The rate of the prompts in use."""
        return self.lr * self.batch_size / 256
