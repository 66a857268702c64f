"""Options of ConvPrompt."""

from pydantic import Field

from hashprompt.methods.config import Epochs, Layers, PromptLength, Schedule
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("convprompt", paper="CVPR 2024")
class ConvPromptConfig(TuningConfig):
    """ConvPrompt: kernels of each task make prompts of an embedding that all tasks share."""

    epochs: Epochs = 10
    lr: float = Field(0.005, gt=0, description="rate of all that trains, times batch_size/256")
    schedule: Schedule = "cosine"
    layers: Layers = (1, 2, 3, 4, 5, 6, 7)
    prompt_length: PromptLength = 20
    kernel_size: int = Field(17, ge=1, le=1000, description="k, of the k × k kernels")
    prompts_per_task: int = Field(
        5,
        ge=1,
        le=10_000,
        description="J, kernels of each task; the paper takes fewer for a task that a language "
        "model finds similar to earlier ones",
    )
    stability: float = Field(
        0.01, ge=0, description="λ, weight of the L1 distance of what tasks share from its start"
    )
