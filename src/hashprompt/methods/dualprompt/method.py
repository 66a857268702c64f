"""DualPrompt: a general prompt for all tasks and an expert prompt for each, found by its key.

Wang et al., ECCV 2022.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.dualprompt.config import DualPromptConfig
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.parts.legacy import prefixes
from hashprompt.parts.slots import between
from hashprompt.parts.task_prompts import KeyedPrompts


class DualPrompt(PromptTuning[DualPromptConfig]):
    """Expert prompts e_t with keys k_t, and a general prompt g that every task trains further.

    As g changes, the features of earlier tasks drift, by design.
    """

    keeps = ("experts.prompts.frozen", "experts.keys.frozen")
    stores = "prompts: experts.prompts general; routers: experts.keys"

    def __init__(self, config: DualPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        dim, start = backbone.dim, between(*config.init_range)
        blocks = blocks_of(config.layers, backbone)
        self.experts = KeyedPrompts(blocks, config.prompt_length, dim, start)  # e_t, k_t
        self.general_blocks = blocks_of(config.general_layers, backbone)
        shape = (len(self.general_blocks), 2, config.general_length, dim)
        self.general = nn.Parameter(start(torch.empty(shape)))  # g

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.experts.add()

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        expert, losses, task = self.experts.choose(query, training, self.config)
        shared = self.general.expand(len(tokens), -1, -1, -1, -1)
        # The public code mixes up keys and values of the expert prompts only.
        general = prefixes(shared, self.general_blocks, public_layout=False)
        return PromptOutput(Injection(prefix={**general, **expert}), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [*self.experts.trained(), self.general]
