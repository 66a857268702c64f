"""Options of CODA-Prompt."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import UnscaledTuningConfig


@register("coda", paper="CVPR 2023, arXiv 2211.13218", code="GT-RIPL/CODA-Prompt")
class CodaConfig(UnscaledTuningConfig):
    """CODA-Prompt: prompts mixed from components that grow with the tasks.

    Args:
        lr: learning rate of components, keys and attention vectors
        components_per_task: new components of each task: M/T, M components for T tasks
        prompt_length: keys (and values) per component; the paper counts both together
        orthogonality: μ, weight of the orthogonality penalty
    """

    lr: kinds.Positive = 1e-3
    schedule: kinds.Schedule = "coda"
    layers: kinds.Layers = (1, 2, 3, 4, 5)
    components_per_task: kinds.Count = 10
    prompt_length: kinds.PromptLength = 4
    orthogonality: kinds.NonNegative = 0.0
