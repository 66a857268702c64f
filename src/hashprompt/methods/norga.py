"""NoRGa: HiDe-Prompt with a non-linear residual gate on the attention to prompts.

Le et al., NeurIPS 2024.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.configs.norga import INFO, NorgaConfig
from hashprompt.methods.hide import Hide

GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "relu": torch.relu,
}


class Norga(Hide):
    """Ŝ = S + a·σ(b·S) on the scores S of prompts; a and b are learned on the first task."""

    info = INFO
    stores: ClassVar = {**Hide.stores, "gates": "routers"}
    config: NorgaConfig  # type: ignore[assignment]

    def __init__(self, config: NorgaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)  # type: ignore[arg-type]
        self.gates = nn.Parameter(torch.ones(len(self.blocks), 2))  # (blocks, [b, a])

    def inject(self, tokens: Tensor, task: Tensor | None) -> Injection:
        gates = {block: partial(self._gate, i) for i, block in enumerate(self.blocks)}
        return replace(super().inject(tokens, task), gates=gates)

    def _gate(self, position: int, scores: Tensor) -> Tensor:
        inner, outer = self.gates[position]
        return outer * GATES[self.config.gate](inner * scores)

    def prompt_parameters(self) -> list[nn.Parameter]:
        # The gate is shared: after the first task a change would alter what old prompts mean.
        first = self.prompts.tasks == 1
        return [*super().prompt_parameters(), *([self.gates] if first else [])]
