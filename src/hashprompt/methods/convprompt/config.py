"""Options of ConvPrompt."""

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "convprompt",
    title="ConvPrompt",
    summary="kernels of each task make prompts of an embedding that all tasks share",
    paper="CVPR 2024",
    family="prompts",
)
class ConvPromptConfig(TuningConfig):
    """Options of ConvPrompt."""

    epochs: int = Field(
        10, ge=1, le=1_000_000, description="epochs of prompts and head on each task"
    )
    lr: float = Field(0.005, gt=0, description="rate of all that trains, times batch_size/256")
    schedule: Schedule = Field("cosine", description="of the rate")
    layers: tuple[int, ...] = Field(
        (1, 2, 3, 4, 5, 6, 7), description="prompted blocks, 1 is the first"
    )
    prompt_length: int = Field(20, ge=1, le=10_000, description="keys (and values) of a prompt")
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
