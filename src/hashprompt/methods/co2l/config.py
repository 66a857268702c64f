"""Options of Co²L."""

from pydantic import Field

from hashprompt.methods.frames.configs.rehearsal import RehearsalConfig
from hashprompt.methods.registry import register


@register(
    "co2l",
    title="Co²L",
    summary="contrastive learning that keeps the relations among images; then a linear classifier",
    paper="ICCV 2021",
    family="rehearsal",
    keeps_images=True,
)
class Co2LConfig(RehearsalConfig):
    """Options of Co²L."""

    projection: int = Field(128, ge=1, le=100_000, description="width of what is contrasted")
    temperature: float = Field(0.5, gt=0, description="τ of the contrastive loss")
    relation_temperature: float = Field(
        0.2, gt=0, description="κ of the learner's relations among images"
    )
    teacher_temperature: float = Field(0.01, gt=0, description="τ* of the teacher's relations")
    distill_weight: float = Field(1.0, ge=0, description="λ: how strongly relations are kept")
    classifier_epochs: int = Field(
        5, ge=1, le=1_000_000, description="epochs of the classifier on each task"
    )
    classifier_lr: float = Field(0.1, gt=0, description="rate of the classifier")
