"""Options of Co²L."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import RehearsalConfig


@register("co2l", paper="ICCV 2021, arXiv 2106.14413", code="chaht01/Co2L")
class Co2LConfig(RehearsalConfig):
    """Co²L: contrastive learning with distilled relations between images, then a linear classifier.

    Args:
        projection: width of the contrasted projections
        temperature: τ of the contrastive loss
        relation_temperature: κ, temperature of the model's relations between images
        teacher_temperature: τ*, temperature of the teacher's relations
        distill_weight: λ, weight of the distillation of relations
        classifier_epochs: epochs of the classifier on each task
        classifier_lr: learning rate of the classifier
    """

    projection: kinds.Count = 128
    temperature: kinds.Positive = 0.5
    relation_temperature: kinds.Positive = 0.2
    teacher_temperature: kinds.Positive = 0.01
    distill_weight: kinds.NonNegative = 1.0
    classifier_epochs: kinds.Count = 5
    classifier_lr: kinds.Positive = 0.1
