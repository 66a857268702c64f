"""Options of Averaged prompt."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Layers, MethodConfig, PromptLength, Ridge, Schedule, Shrinkage
from hashprompt.methods.registry import register
from hashprompt.parts.variants import Storage


@register("averaged-prompt", family="drift compensation")
class AveragedPromptConfig(MethodConfig):
    """Averaged prompt: one prompt averaged over tasks, class Gaussians that follow its drift, one
    pass.
    """

    epochs: int = Field(
        50, ge=0, le=1_000_000, description="epochs on each task; 0 fits frozen features only"
    )
    lr: float = Field(0.03, gt=0, description="learning rate of the prompt, times batch_size/256")
    first_lr_scale: float = Field(
        3.0, gt=0, description="learning rate of the first task, which has no old classes, over lr"
    )
    schedule: Schedule = "step"
    layers: Layers = None
    prompt_length: PromptLength = Field(8, description="keys (and values) in each block")
    drift: Literal["none", "shift", "affine"] = Field(
        "affine", description="drift compensation of old class Gaussians, fitted on new images"
    )
    drift_ridge: float = Field(1.0, gt=0, description="ridge of the affine map")
    drift_views: int = Field(
        0, ge=0, le=100, description="CutMix views of each new image that the map is fitted on too"
    )
    statistics: Storage = Field("covariance", description="what is stored for each class")
    rank: int = Field(16, ge=1, le=10_000, description="directions of low-rank statistics")
    shrinkage: Shrinkage = 0.95
    ridge: Ridge = 0.3
