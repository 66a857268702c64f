"""S-Prompt++: a prompt of its own for every task, found by the nearest of the tasks' keys.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from typing import ClassVar

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.frames.prompt_tuning import Prompted, PromptTuning
from hashprompt.methods.s_prompt_plus.config import SPromptPlusConfig
from hashprompt.parts.keys import TaskKeys
from hashprompt.parts.slots import between
from hashprompt.parts.task_prompts import TaskPrompts


class SPromptPlus(PromptTuning):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    keeps = ("prompts.frozen", "keys.frozen")
    stores: ClassVar = {"keys": "routers"}
    config: SPromptPlusConfig

    def __init__(self, config: SPromptPlusConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, start = blocks_of(config.layers, backbone), between(*config.init_range)
        self.prompts = TaskPrompts(blocks, config.prompt_length, backbone.dim, start)  # e_t
        self.keys = TaskKeys((backbone.dim,), start)  # k_t

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()
        self.keys.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> Prompted:
        config = self.config
        # In training the task is known, and only its own key is drawn to its images.
        task = None if training else self.keys.nearest(query, config.batchwise_prompt)
        losses = {"pull": -config.pull * self.keys.pull(query)} if training else {}
        prefix = self.prompts.prefixes(task, len(tokens), config.legacy_kv_layout)
        return Prompted(Injection(prefix=prefix), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current, self.keys.current]
