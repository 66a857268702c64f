"""S-Prompt++: a separate prompt for every task, found by the nearest key.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.s_prompt_plus.config import SPromptPlusConfig
from hashprompt.parts.slots import between
from hashprompt.parts.task_prompts import KeyedPrompts


class SPromptPlus(PromptTuning[SPromptPlusConfig]):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    keeps = ("experts.prompts.frozen", "experts.keys.frozen")
    stores = "prompts: experts.prompts; routers: experts.keys"

    def __init__(self, config: SPromptPlusConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, start = blocks_of(config.layers, backbone), between(*config.init_range)
        self.experts = KeyedPrompts(blocks, config.prompt_length, backbone.dim, start)  # e_t, k_t

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.experts.add()

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        prefix, losses, task = self.experts.choose(query, training, self.config)
        return PromptOutput(Injection(prefix=prefix), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return self.experts.trained()
