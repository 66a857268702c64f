"""DualPrompt: a general prompt for all tasks and an expert prompt for each, found by its key.

Wang et al., ECCV 2022.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import blocks_of
from hashprompt.methods.configs.dualprompt import INFO, DualPromptConfig
from hashprompt.methods.s_prompt_plus import SPromptPlus
from hashprompt.methods.tuning import Prompted
from hashprompt.parts.legacy import prefixes


class DualPrompt(SPromptPlus):
    """Expert prompts as in S-Prompt++, and a general prompt g that every task goes on training.

    As g changes, the features of earlier tasks drift: that is the method.
    """

    info = INFO
    stores: ClassVar = {**SPromptPlus.stores, "general": "prompts"}
    config: DualPromptConfig  # type: ignore[assignment]

    def __init__(self, config: DualPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)  # type: ignore[arg-type]
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
