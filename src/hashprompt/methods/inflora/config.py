"""Options of InfLoRA."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Clip, Count, Epochs, ScaleLR, Schedule
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("inflora", paper="CVPR 2024", scenarios=("class",), family="adapters")
class InfLoRAConfig(TuningConfig):
    """InfLoRA: low-rank changes of keys and values where inputs of old tasks do not see them."""

    epochs: Epochs = 20
    lr: float = Field(5e-4, gt=0, description="rate of B, times batch_size/256 with scale_lr")
    head_lr_scale: float = Field(1.0, gt=0, description="rate of the head over that of B")
    schedule: Schedule = "coda"
    clip: Clip = None
    scale_lr: ScaleLR = False
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd has momentum 0.9")
    rank: Count = Field(10, description="r, directions that each task may use")
    energy: float = Field(
        0.95, gt=0, lt=1, description="λ, share of a task's inputs that later tasks leave alone"
    )
    expected_tasks: int = Field(
        10,
        ge=1,
        le=1_000_000,
        description="T, over which that share rises towards 1; after so many tasks it stays",
    )

    def share(self, task: int) -> float:
        """ε_t = λ + (1 − λ)(t − 1)/T, of the task at this 0-based index."""
        passed = min(task, self.expected_tasks - 1) / self.expected_tasks
        return self.energy + (1 - self.energy) * passed
