"""Options of InfLoRA."""

from typing import Literal

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "inflora",
    title="InfLoRA",
    summary="low-rank changes of keys and values where inputs of old tasks do not see them",
    paper="CVPR 2024",
    scenarios=("class",),
    family="adapters",
)
class InfLoRAConfig(TuningConfig):
    """Options of InfLoRA."""

    epochs: int = Field(20, ge=1, le=1_000_000, description="epochs on each task")
    lr: float = Field(5e-4, gt=0, description="rate of B, times batch_size/256 with scale_lr")
    head_lr_scale: float = Field(1.0, gt=0, description="rate of the head over that of B")
    schedule: Schedule = Field(
        "coda", description="of the rate; `coda` is a cosine, almost zero in the last epoch"
    )
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="sgd has momentum 0.9")
    rank: int = Field(10, ge=1, le=100_000, description="r, directions that each task may use")
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
