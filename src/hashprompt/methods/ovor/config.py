"""Options of OVOR."""

from pydantic import Field, model_validator

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "ovor",
    title="OVOR",
    summary="one prompt for all tasks, virtual outliers at the head",
    paper="ICLR 2024",
    family="prompts",
)
class OvorConfig(TuningConfig):
    """Options of OVOR."""

    epochs: int = Field(
        16, ge=1, le=1_000_000, description="epochs of prompt and head on each task"
    )
    lr: float = Field(1e-3, gt=0, description="rate of prompt and head")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    schedule: Schedule = Field("coda", description="of the rate, one decay over both stages")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    prompt_lengths: tuple[int, ...] = Field(
        (5, 5, 20, 20, 20), description="keys (and values) in each prompted block"
    )
    outliers: bool = Field(True, description="second stage; without it this is OnePrompt")
    outlier_epochs: int = Field(4, ge=1, le=1_000_000, description="epochs of the second stage")
    outliers_per_class: int = Field(
        40, ge=1, le=100_000, description="virtual outliers kept per class"
    )
    neighbours: int = Field(
        50, ge=1, le=100_000, description="k of the distance to the k-th neighbour"
    )
    boundary: int = Field(
        50, ge=1, le=100_000, description="features of a task that noise is added to"
    )
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
