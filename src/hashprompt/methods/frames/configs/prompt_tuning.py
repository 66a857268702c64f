"""Options of methods that train prompts and one linear head together."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import MethodConfig, Schedule


class TuningConfig(MethodConfig):
    """Training of prompts and head, with what differs among public repositories."""

    epochs: int = Field(
        50, ge=1, le=1_000_000, description="epochs of prompts and head on each task"
    )
    lr: float = Field(0.03, gt=0, description="rate of the prompts, times batch_size/256")
    head_lr_scale: float = Field(1.0, gt=0, description="rate of the head over that of prompts")
    schedule: Schedule = Field(
        "constant", description="of the rate; `step` divides it by ten every 30 epochs"
    )
    clip: float | None = Field(1.0, gt=0, description="largest gradient norm")
    scale_lr: bool = Field(True, description="whether rates are multiplied by batch_size/256")
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="sgd has momentum 0.9")
    weight_decay: float = Field(0.0, ge=0, description="of everything that is trained")

    def rate(self) -> float:
        """The rate of the prompts in use."""
        return self.lr * self.batch_size / 256 if self.scale_lr else self.lr
