"""Options of OVOR."""

from pydantic import Field, model_validator

from hashprompt.methods.config import Clip, Count, Epochs, ScaleLR, Schedule
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("ovor", paper="ICLR 2024")
class OvorConfig(TuningConfig):
    """OVOR: one prompt for all tasks, virtual outliers at the head."""

    epochs: Epochs = 16
    lr: float = Field(1e-3, gt=0, description="rate of prompt and head")
    scale_lr: ScaleLR = False
    schedule: Schedule = Field("coda", description="of the rate, one decay over both stages")
    clip: Clip = None
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    prompt_lengths: tuple[int, ...] = Field(
        (5, 5, 20, 20, 20), description="keys (and values) in each prompted block"
    )
    outliers: bool = Field(True, description="second stage; without it this is OnePrompt")
    outlier_epochs: Epochs = Field(4, description="epochs of the second stage")
    outliers_per_class: Count = Field(40, description="virtual outliers kept per class")
    neighbours: Count = Field(50, description="k of the distance to the k-th neighbour")
    boundary: Count = Field(50, description="features of a task that noise is added to")
    noise_draws: int = Field(
        600, ge=1, le=1_000_000, description="noise vectors around each of them"
    )
    noise: float = Field(0.1, gt=0, description="σ of the noise")
    outlier_weight: float = Field(0.1, ge=0, description="λ, weight of the energy losses")
    energy_inside: float = Field(-15.0, description="energy that features should be below")
    energy_outside: float = Field(-3.0, description="energy that outliers should be above")
    ovor_literal: bool = Field(
        False, description="outliers as the public code makes them: noise without the boundary"
    )

    @model_validator(mode="after")
    def _one_length_per_layer(self) -> "OvorConfig":
        if len(self.prompt_lengths) != len(self.layers) or min(self.prompt_lengths) < 1:
            raise ValueError(
                f"prompt_lengths={list(self.prompt_lengths)} must give a length of at least 1 for "
                f"each of layers={list(self.layers)}"
            )
        return self
