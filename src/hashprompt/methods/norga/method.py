"""NoRGa: HiDe-Prompt with a non-linear residual gate on the attention to prompts.

Le et al., NeurIPS 2024.
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.frames.hide_pipeline import TaskPromptPipeline
from hashprompt.methods.norga.config import NorgaConfig


class Norga(TaskPromptPipeline[NorgaConfig]):
    """Ŝ = S + a·σ(b·S) on the scores S of prompts; a and b are learned on the first task."""

    stores = "routers: gates"

    def __init__(self, config: NorgaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.gates = nn.Parameter(torch.ones(len(self.prompts.blocks), 2))  # (blocks, [b, a])

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        gates = {block: partial(self.gate, i) for i, block in enumerate(self.prompts.blocks)}
        return replace(super().inject(tokens, task), gates=gates)

    def gate(self, position: int, scores: Tensor) -> Tensor:
        """a·σ(b·S) of a prompted block."""
        inner, outer = self.gates[position]
        activation = getattr(F, self.config.gate)
        return outer * activation(inner * scores)

    def prompt_parameters(self) -> list[nn.Parameter]:
        # The gate is shared: after the first task a change would alter what old prompts mean.
        first = self.prompts.tasks == 1
        return [self.prompts.current, *([self.gates] if first else [])]
