"""Options of DualPrompt."""

from typing import Self

from pydantic import model_validator

from hashprompt.methods import kinds, register
from hashprompt.methods.frames.options import TaskKeyConfig


@register("dualprompt", paper="ECCV 2022, arXiv 2204.04799", code="google-research/l2p")
class DualPromptConfig(TaskKeyConfig):
    """DualPrompt: a general prompt, and one per task found by the nearest key.

    Args:
        layers: blocks of the expert prompts
        general_layers: blocks of the general prompt
        general_length: keys (and values) of the general prompt
    """

    layers: tuple[int, ...] = (3, 4, 5)
    general_layers: tuple[int, ...] = (1, 2)
    general_length: kinds.Count = 5

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if both := sorted({*self.layers} & {*self.general_layers}):
            raise ValueError(f"blocks {both} are in layers and in general_layers; choose one")
        return self
