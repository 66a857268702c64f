"""DualPrompt: a general prompt for all tasks and an expert prompt for each, found by its key.

Wang et al., ECCV 2022.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import MethodInfo, blocks_of, register
from hashprompt.methods.s_prompt_plus import SPromptPlus, SPromptPlusConfig
from hashprompt.methods.tuning import Prompted
from hashprompt.parts.legacy import prefixes


class DualPromptConfig(SPromptPlusConfig):
    """Options of DualPrompt."""

    layers: tuple[int, ...] = Field((3, 4, 5), description="blocks of the expert prompts")
    general_layers: tuple[int, ...] = Field((1, 2), description="blocks of the general prompt")
    general_length: int = Field(5, ge=1, description="keys (and values) of the general prompt")

    @model_validator(mode="after")
    def _apart(self) -> "DualPromptConfig":
        both = sorted({*self.layers} & {*self.general_layers})
        if both:
            raise ValueError(f"blocks {both} are in layers and in general_layers; choose one")
        return self


@register("dualprompt", DualPromptConfig)
class DualPrompt(SPromptPlus):
    """Expert prompts as in S-Prompt++, and a general prompt g that every task goes on training.

    As g changes, the features of earlier tasks drift: that is the method.
    """

    info = MethodInfo(
        "DualPrompt", "a general prompt, and one per task found by the nearest key", "ECCV 2022"
    )
    stores: ClassVar = {**SPromptPlus.stores, "general": "prompts"}
    config: DualPromptConfig

    def __init__(self, config: DualPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.general_blocks = blocks_of(config.general_layers, backbone)
        shape = (len(self.general_blocks), 2, config.general_length, backbone.dim)
        self.general = nn.Parameter(self._start(torch.empty(shape)))

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> Prompted:
        expert = super().prompt(tokens, query, training)
        shared = self.general.expand(len(tokens), -1, -1, -1, -1)
        # The public code mixes up keys and values of the expert prompts alone.
        general = prefixes(shared, self.general_blocks, public_layout=False)
        inject = replace(expert.inject, prefix={**general, **expert.inject.prefix})
        return expert._replace(inject=inject)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [*super().prompt_parameters(), self.general]
