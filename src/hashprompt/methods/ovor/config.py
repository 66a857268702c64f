"""Options of OVOR."""

from typing import Self

from pydantic import model_validator

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import UnscaledTuningConfig


@register(
    "ovor", paper="ICLR 2024, arXiv 2402.04129", code="jpmorganchase/ovor", scenarios=("class",)
)
class OvorConfig(UnscaledTuningConfig):
    """OVOR: one prompt for all tasks, virtual outliers at the head.

    Args:
        lr: learning rate of prompt and head
        schedule: learning-rate schedule, one decay over both stages
        layers: prompted blocks, counted from 1
        prompt_lengths: keys (and values) in each prompted block
        outliers: train the second stage; without it this is OnePrompt
        outlier_epochs: epochs of the second stage
        outliers_per_class: virtual outliers kept per class
        neighbours: k of the distance to the k-th neighbour
        boundary: features of a task that noise is added to
        noise_draws: noise vectors around each of them
        noise: σ of the noise
        outlier_weight: λ, weight of the energy losses
        energy_inside: energy that features should be below
        energy_outside: energy that outliers should be above
    """

    epochs: kinds.Count = 16
    lr: kinds.Positive = 1e-3
    schedule: kinds.Schedule = "coda"
    layers: tuple[int, ...] = (1, 2, 3, 4, 5)
    prompt_lengths: tuple[int, ...] = (5, 5, 20, 20, 20)
    outliers: bool = True
    outlier_epochs: kinds.Count = 4
    outliers_per_class: kinds.Count = 40
    neighbours: kinds.Count = 50
    boundary: kinds.Count = 50
    noise_draws: kinds.Count = 600
    noise: kinds.Positive = 0.1
    outlier_weight: kinds.NonNegative = 0.1
    energy_inside: float = -15.0
    energy_outside: float = -3.0

    @model_validator(mode="after")
    def _one_length_per_layer(self) -> Self:
        if len(self.prompt_lengths) != len(self.layers) or min(self.prompt_lengths) < 1:
            raise ValueError("prompt_lengths must give a length of at least 1 for each of layers")
        return self
