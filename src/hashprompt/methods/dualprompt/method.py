"""DualPrompt: a general prompt for all tasks and an expert prompt for each, found by its key.

Wang et al., ECCV 2022.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import blocks_of
from hashprompt.methods.dualprompt.config import DualPromptConfig
from hashprompt.methods.frames.prompt_tuning import KeyedTaskPrompts, PromptOutput
from hashprompt.parts.legacy import prefixes
from hashprompt.parts.slots import between


class DualPrompt(KeyedTaskPrompts[DualPromptConfig]):
    """Expert prompts e_t with keys k_t, and a general prompt g that every task trains further.

    As g changes, the features of earlier tasks drift, by design.
    """

    stores = "prompts: general"

    def __init__(self, config: DualPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.general_blocks = blocks_of(config.general_layers, backbone)
        shape = (len(self.general_blocks), 2, config.general_length, backbone.dim)
        self.general = nn.Parameter(between(*config.init_range)(torch.empty(shape)))  # g

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        expert = super().prompt(tokens, query, training)
        shared = self.general.expand(len(tokens), -1, -1, -1, -1)
        # The public code mixes up keys and values of the expert prompts only.
        general = prefixes(shared, self.general_blocks, public_layout=False)
        return expert._replace(inject=Injection(prefix={**general, **expert.inject.prefix}))

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [*super().prompt_parameters(), self.general]
