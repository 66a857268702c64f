"""Options of CODA-Prompt."""

from pydantic import Field

from hashprompt.methods.config import Schedule
from hashprompt.methods.frames.configs.prompt_tuning import TuningConfig
from hashprompt.methods.registry import register


@register(
    "coda",
    title="CODA-Prompt",
    summary="prompts mixed from components that grow with the tasks",
    paper="CVPR 2023",
    family="prompts",
)
class CodaConfig(TuningConfig):
    """Options of CODA-Prompt."""

    epochs: int = Field(
        20, ge=1, le=1_000_000, description="epochs of prompts and head on each task"
    )
    lr: float = Field(1e-3, gt=0, description="rate of components, keys and attention vectors")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    schedule: Schedule = Field("coda", description="of the rate")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    components_per_task: int = Field(
        10,
        ge=1,
        le=10_000,
        description="new components of each task: M/T, M components for T tasks",
    )
    prompt_length: int = Field(
        4,
        ge=1,
        le=10_000,
        description="keys (and values) per component; the paper counts both together",
    )
    orthogonality: float = Field(0.0, ge=0, description="μ, weight of the orthogonality penalty")
