"""Options of Averaged prompt."""

from typing import Literal

from hashprompt.methods import MethodConfig, kinds, register


@register("averaged-prompt", family="drift compensation")
class AveragedPromptConfig(MethodConfig):
    """Averaged prompt: one prompt averaged over tasks, class Gaussians with drift compensation.

    Args:
        epochs: epochs on each task; 0 fits frozen features only
        lr: learning rate of the prompt, times batch_size/256
        first_lr_scale: learning rate of the first task (no old classes), as a factor of lr
        prompt_length: keys (and values) in each block
        drift: drift compensation of old class Gaussians, fitted on new images
        drift_ridge: ridge of the affine map
        rank: directions of low-rank statistics
    """

    epochs: kinds.CountOrZero = 50
    lr: kinds.Positive = 0.03
    first_lr_scale: kinds.Positive = 3.0
    schedule: kinds.Schedule = "step"
    layers: kinds.Layers = None
    prompt_length: kinds.PromptLength = 8
    drift: Literal["none", "shift", "affine"] = "affine"
    drift_ridge: kinds.Positive = 1.0
    statistics: kinds.Storage = "covariance"
    rank: kinds.Count = 16
    shrinkage: kinds.Share = 0.95
    ridge: kinds.Positive = 0.3
