"""HiDe-Prompt: a separate prompt for every task, found by task inference.

Wang et al., NeurIPS 2023. The rest of the method is the pipeline itself.
"""

from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.frames.hide_pipeline import PromptPipeline
from hashprompt.methods.hide.config import HideConfig
from hashprompt.parts.legacy import prefixes, shared_task
from hashprompt.parts.slots import TaskPrompts, uniform


class Hide(PromptPipeline[HideConfig]):
    """A separate prompt for every task."""

    keeps = (*PromptPipeline.keeps, "prompts.frozen")

    def __init__(self, config: HideConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, length = blocks_of(config.layers, backbone), config.prompt_length
        self.prompts = TaskPrompts(blocks, length, backbone.dim, uniform(1), config.momentum)

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        if task is not None and self.config.batchwise_prompt:
            task = shared_task(task)
        chosen, layout = self.prompts.of(task, len(tokens)), self.config.legacy_kv_layout
        return Injection(prefix=prefixes(chosen, self.prompts.blocks, layout))

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current]
