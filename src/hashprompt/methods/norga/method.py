"""NoRGa: HiDe-Prompt with a non-linear residual gate on the attention to prompts.

Le et al., NeurIPS 2024.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.frames.hide_pipeline import PromptPipeline
from hashprompt.methods.norga.config import NorgaConfig
from hashprompt.parts.slots import uniform
from hashprompt.parts.task_prompts import TaskPrompts

GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "relu": torch.relu,
}


class Norga(PromptPipeline[NorgaConfig]):
    """Ŝ = S + a·σ(b·S) on the scores S of prompts; a and b are learned on the first task."""

    keeps = (*PromptPipeline.keeps, "prompts.frozen")
    stores = "routers: gates"

    def __init__(self, config: NorgaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, length = blocks_of(config.layers, backbone), config.prompt_length
        self.prompts = TaskPrompts(blocks, length, backbone.dim, uniform(1), config.momentum)
        self.gates = nn.Parameter(torch.ones(len(self.prompts.blocks), 2))  # (blocks, [b, a])

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.prompts.add()

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        prefix = self.prompts.prefixes(task, tokens.shape[0], self.config)
        gates = {block: partial(self.gate, i) for i, block in enumerate(self.prompts.blocks)}
        return Injection(prefix=prefix, gates=gates)

    def gate(self, position: int, scores: Tensor) -> Tensor:
        """a·σ(b·S) of a prompted block."""
        inner, outer = self.gates[position]
        return outer * GATES[self.config.gate](inner * scores)

    def prompt_parameters(self) -> list[nn.Parameter]:
        # The gate is shared: after the first task a change would alter what old prompts mean.
        first = self.prompts.tasks == 1
        return [self.prompts.current, *([self.gates] if first else [])]
