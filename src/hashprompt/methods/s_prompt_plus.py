"""S-Prompt++: a prompt of its own for every task, found by the nearest of the tasks' keys.

The form that HiDe-Prompt (Wang et al., NeurIPS 2023) gave to S-Prompts (Wang et al., NeurIPS
2022) for comparison: DualPrompt without its general prompt.
"""

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import MethodInfo, TaskView, blocks_of, register
from hashprompt.methods.l2p import KeyedConfig
from hashprompt.methods.tuning import Prompted, PromptTuning
from hashprompt.parts.keys import cosine
from hashprompt.parts.legacy import LegacyLayout, most_frequent, prefixes
from hashprompt.parts.slots import TaskSlots


class SPromptPlusConfig(KeyedConfig, LegacyLayout):
    """Options of S-Prompt++."""

    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    prompt_length: int = Field(20, ge=1, description="keys (and values) per prompt")


@register("s-prompt-plus", SPromptPlusConfig)
class SPromptPlus(PromptTuning):
    """Expert prompts e_t with keys k_t; those of earlier tasks stay as they are."""

    info = MethodInfo(
        "S-Prompt++", "a prompt of its own per task, found by the nearest key", "NeurIPS 2022"
    )
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
