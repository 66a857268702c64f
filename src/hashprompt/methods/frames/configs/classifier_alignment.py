"""Options of methods that align a head of all classes with pseudo-features."""

from pydantic import Field

from hashprompt.methods.frames.configs.full_finetuning import WholeConfig


class AlignedConfig(WholeConfig):
    """Training of the network on a task, then of the head on samples of class Gaussians."""

    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    align_epochs: int = Field(5, ge=1, le=1_000_000, description="epochs of aligning the head")
    align_lr: float = Field(0.01, gt=0, description="rate of aligning the head")
    align_samples: int = Field(
        256, ge=1, le=1_000_000, description="pseudo-features of each class in such an epoch"
    )
    align_weight_decay: float = Field(5e-4, ge=0, description="of the head that is aligned")
