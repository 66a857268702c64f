"""HiDe-Prompt: a prompt of its own for every task, found by task-identity inference.

Wang et al., NeurIPS 2023. The rest of the method is the pipeline itself.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.configs.hide import INFO, HideConfig
from hashprompt.methods.pipeline import PromptPipeline
from hashprompt.parts.legacy import most_frequent, prefixes
from hashprompt.parts.slots import TaskSlots, uniform


class Hide(PromptPipeline):
    """Isolated prompts."""

    info = INFO
    keeps = (*PromptPipeline.keeps, "prompts.frozen")
    config: HideConfig

    def __init__(self, config: HideConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        shape = (len(self.blocks), 2, config.prompt_length, backbone.dim)
        self.prompts = TaskSlots(shape, uniform(1))  # e_t; once the task is learned, p_t

    def begin_task(self, task: TaskView) -> None:
        if self.prompts.tasks:
            self.prompts.current.data.copy_(self._mixed())  # what was trained is what is kept
        super().begin_task(task)
        self.prompts.add(copy_last=True)

    def _mixed(self) -> Tensor:
        """p_t = (1 − m)·e_t + m · mean of the prompts before it, (blocks, 2, L, D)."""
        slots, m = self.prompts, self.config.momentum
        if not len(slots.frozen) or not m:
            return slots.current
        return (1 - m) * slots.current + m * slots.frozen.mean(0)

    def select(self, task: Tensor | None, count: int) -> Tensor:
        """The prompt of each image, (B, blocks, 2, L, D)."""
        current = self._mixed()[None]
        if task is None:
            return current.expand(count, -1, -1, -1, -1)
        if self.config.batchwise_prompt:
            task = most_frequent(task[:, None])[:, 0]
        return torch.cat((self.prompts.frozen, current))[task]

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        chosen = self.select(task, len(tokens))
        return Injection(prefix=prefixes(chosen, self.blocks, self.config.legacy_kv_layout))

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current]
