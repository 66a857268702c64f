"""S-Prompt++: a prompt of its own for every task, found by the nearest of the tasks' keys.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from typing import ClassVar

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.configs.s_prompt_plus import INFO, SPromptPlusConfig
from hashprompt.methods.tuning import Prompted, PromptTuning
from hashprompt.parts.keys import cosine
from hashprompt.parts.legacy import most_frequent, prefixes
from hashprompt.parts.slots import TaskSlots


class SPromptPlus(PromptTuning):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    info = INFO
    keeps = ("prompts.frozen", "keys.frozen")
    stores: ClassVar = {"keys": "routers"}
    config: SPromptPlusConfig

    def __init__(self, config: SPromptPlusConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        shape = (len(self.blocks), 2, config.prompt_length, backbone.dim)
        self.prompts = TaskSlots(shape, self._start)  # e_t
        self.keys = TaskSlots((backbone.dim,), self._start)  # k_t

    def _start(self, tensor: Tensor) -> Tensor:
        return tensor.uniform_(*self.config.init_range)

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add(copy_last=True)
        self.keys.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> Prompted:
        task: Tensor | None = None
        losses: dict[str, Tensor] = {}
        if training:  # the task is known, and only its own key is drawn to its images
            chosen = self.prompts.current.expand(len(query), -1, -1, -1, -1)
            losses["pull"] = -self.config.pull * cosine(query, self.keys.current[None]).mean()
        else:
            task = cosine(query, self.keys.stacked()).argmax(1)
            if self.config.batchwise_prompt:
                task = most_frequent(task[:, None])[:, 0]
            chosen = self.prompts.stacked()[task]
        prefix = prefixes(chosen, self.blocks, self.config.legacy_kv_layout)
        return Prompted(Injection(prefix=prefix), losses, task)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current, self.keys.current]
