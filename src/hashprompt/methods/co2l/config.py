"""Options of Co²L."""

from pydantic import Field

from hashprompt.methods.config import Count, Epochs
from hashprompt.methods.frames.options import RehearsalConfig
from hashprompt.methods.registry import register


@register("co2l", paper="ICCV 2021")
class Co2LConfig(RehearsalConfig):
    """Co²L: contrastive learning that keeps relations among images, then a linear classifier."""

    projection: Count = Field(128, description="width of what is contrasted")
    temperature: float = Field(0.5, gt=0, description="τ of the contrastive loss")
    relation_temperature: float = Field(
        0.2, gt=0, description="κ of the learner's relations among images"
    )
    teacher_temperature: float = Field(0.01, gt=0, description="τ* of the teacher's relations")
    distill_weight: float = Field(1.0, ge=0, description="λ: how strongly relations are kept")
    classifier_epochs: Epochs = Field(5, description="epochs of the classifier on each task")
    classifier_lr: float = Field(0.1, gt=0, description="rate of the classifier")
