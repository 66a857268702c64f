"""Options of ConvPrompt."""

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import TuningConfig


@register("convprompt", paper="CVPR 2024, arXiv 2403.20317", code="CVIR/ConvPrompt")
class ConvPromptConfig(TuningConfig):
    """ConvPrompt: convolution kernels of each task generate prompts from a shared embedding.

    Args:
        kernel_size: k, of the k × k kernels
        prompts_per_task: J, kernels of each task; the paper takes fewer when a language model
            finds a task similar to earlier ones
        stability: λ, weight of the L1 distance of shared parameters from their values before
    """

    epochs: kinds.Count = 10
    lr: kinds.Positive = 0.005
    schedule: kinds.Schedule = "cosine"
    layers: kinds.Layers = (1, 2, 3, 4, 5, 6, 7)
    prompt_length: kinds.PromptLength = 20
    kernel_size: kinds.Count = 17
    prompts_per_task: kinds.Count = 5
    stability: kinds.NonNegative = 0.01
