"""Options of CPrompt."""

from typing import Annotated

from pydantic import Field

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import UnscaledTuningConfig


@register(
    "cprompt", paper="CVPR 2024, arXiv 2403.08568", code="Zhanxin-Gao/CPrompt", scenarios=("class",)
)
class CPromptConfig(UnscaledTuningConfig):
    """CPrompt: prompts per task, trained with all classifiers and all prompts.

    Args:
        lr: learning rate of prompts and keys
        layers: blocks before which prompts are added
        prompt_length: tokens of each of these prompts
        consistency: α, weight of classifier consistency
        smoothing: τ, temperature of an old classifier that must not win
        margin: lead of the new classifier that is enough
    """

    batch_size: kinds.BatchSize = 16
    epochs: kinds.Count = 18
    lr: kinds.Positive = 0.01
    schedule: kinds.Schedule = "cosine"
    optimizer: kinds.Optimizer = "sgd"
    weight_decay: kinds.NonNegative = 5e-4
    layers: tuple[int, ...] = (1, 6)
    prompt_length: kinds.PromptLength = 50
    consistency: kinds.NonNegative = 1.0
    smoothing: Annotated[float, Field(ge=1)] = 1.2
    margin: float = 0.0
