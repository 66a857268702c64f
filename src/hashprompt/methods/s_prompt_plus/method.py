"""S-Prompt++: a separate prompt for every task, found by the nearest key.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.s_prompt_plus.config import SPromptPlusConfig
from hashprompt.parts.cosine import cosine
from hashprompt.parts.legacy import prefixes, shared_task
from hashprompt.parts.slots import TaskPrompts, TaskSlots, between


class SPromptPlus(PromptTuning[SPromptPlusConfig]):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    keeps = ("prompts.frozen", "keys.frozen")
    stores = "routers: keys"

    def __init__(self, config: SPromptPlusConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, start = blocks_of(config.layers, backbone), between(*config.init_range)
        self.prompts = TaskPrompts(blocks, config.prompt_length, backbone.dim, start)  # e_t
        self.keys = TaskSlots((backbone.dim,), start)  # k_t

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()
        self.keys.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        losses, task = {}, None
        if training:  # the task is known, and only its key is pulled towards its images
            pull = cosine(query, self.keys.current[None]).mean()
            losses = {"pull": -self.config.pull * pull}
        else:
            task = cosine(query, self.keys.stacked()).argmax(1)
            task = shared_task(task) if self.config.batchwise_prompt else task
        chosen, layout = self.prompts.of(task, len(query)), self.config.legacy_kv_layout
        return PromptOutput(Injection(prefixes(chosen, self.prompts.blocks, layout)), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current, self.keys.current]
