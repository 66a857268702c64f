"""S-Prompts: a separate prompt and head for every domain, found by its centroids.

Wang et al., NeurIPS 2022 (the variant with image prompts only, S-iPrompts).
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, TaskView
from hashprompt.methods.frames.domains import DomainPrompts
from hashprompt.methods.s_prompts.config import SPromptsConfig
from hashprompt.parts.slots import TaskSlots, uniform


class SPrompts(DomainPrompts[SPromptsConfig]):
    """A separate prompt and head for every domain."""

    keeps = (*DomainPrompts.keeps, "heads.frozen")
    stores = "head: heads"

    def __init__(self, config: SPromptsConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.heads = self.heads_of(0)  # the number of classes follows from the data

    def heads_of(self, classes: int) -> TaskSlots:
        """A head (C, D + 1) for every domain; the last column is the bias."""
        dim = self.backbone.dim
        return TaskSlots((classes, dim + 1), uniform(dim**-0.5))

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        if not self.heads.tasks:
            self.heads = self.heads_of(max(task.classes) + 1).to(self.device)
        self.heads.add(copy_last=False)

    def logits(self, tokens: Tensor, domain: Tensor | None) -> Tensor:
        prompt = self.prompts.of(domain, len(tokens))
        features = self.backbone.encode(tokens, Injection(tokens={0: prompt}))
        if domain is None:
            head = self.heads.current
            return F.linear(features, head[:, :-1], head[:, -1])
        heads = self.heads.stacked()
        every = torch.einsum("bd,tcd->btc", features, heads[..., :-1]) + heads[..., -1]
        return every[torch.arange(len(domain), device=domain.device), domain]

    def head_parameters(self, task: TaskView) -> list[nn.Parameter]:
        return [self.heads.current]

    def phases(self, task: TaskView) -> list[Phase]:
        train, centroids = super().phases(task)
        if task.index == 0:
            decay = self.config.first_weight_decay
            groups = [replace(group, weight_decay=decay) for group in train.groups]
            train = replace(train, groups=groups)
        return [train, centroids]
