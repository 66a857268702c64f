"""Options of CODA-Prompt."""

from pydantic import Field

from hashprompt.methods.config import Clip, Epochs, Layers, PromptLength, ScaleLR, Schedule
from hashprompt.methods.frames.options import TuningConfig
from hashprompt.methods.registry import register


@register("coda", paper="CVPR 2023")
class CodaConfig(TuningConfig):
    """CODA-Prompt: prompts mixed from components that grow with the tasks."""

    epochs: Epochs = 20
    lr: float = Field(1e-3, gt=0, description="rate of components, keys and attention vectors")
    scale_lr: ScaleLR = False
    schedule: Schedule = "coda"
    clip: Clip = None
    layers: Layers = (1, 2, 3, 4, 5)
    components_per_task: int = Field(
        10,
        ge=1,
        le=10_000,
        description="new components of each task: M/T, M components for T tasks",
    )
    prompt_length: PromptLength = Field(
        4, description="keys (and values) per component; the paper counts both together"
    )
    orthogonality: float = Field(0.0, ge=0, description="μ, weight of the orthogonality penalty")
