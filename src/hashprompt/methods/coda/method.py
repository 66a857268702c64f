"""CODA-Prompt: a prompt is a sum of components, weighted by how the image attends to each.

Smith et al., CVPR 2023. Every task adds components; those of earlier tasks are frozen but still
take part.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView, blocks_of
from hashprompt.methods.coda.config import CodaConfig
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.parts.slots import OrthogonalSlots, orthogonality_penalty

TINY = 1e-12


class Coda(PromptTuning[CodaConfig]):
    """p = Σ_m a_m P_m with a_m = cos(q ⊙ A_m, K_m), for every prompted block."""

    keeps = ("components.frozen", "keys.frozen", "attention.frozen")
    stores = "prompts: components; routers: keys attention"

    def __init__(self, config: CodaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        shape, dim = (len(self.blocks), config.components_per_task), backbone.dim
        self.components = OrthogonalSlots(*shape, 2, config.prompt_length, dim)  # P
        self.keys = OrthogonalSlots(*shape, dim)  # K
        self.attention = OrthogonalSlots(*shape, dim)  # A

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        for vectors in (self.components, self.keys, self.attention):
            vectors.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        components, keys = self.components.joined(), self.keys.joined()
        attention, losses = self.attention.joined(), {}
        weights = component_weights(query, attention, keys)
        prefix = torch.einsum("bgm,gmkld->bgkld", weights, components).unbind(1)
        if training and self.config.orthogonality:
            all_vectors = (keys, attention, components.flatten(2))
            penalty = torch.stack([orthogonality_penalty(v) for v in all_vectors]).sum()
            losses["orthogonality"] = self.config.orthogonality * penalty
        return PromptOutput(Injection(prefix=dict(zip(self.blocks, prefix, strict=True))), losses)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.components.current, self.keys.current, self.attention.current]


def component_weights(query: Tensor, attention: Tensor, keys: Tensor) -> Tensor:
    """a_m = cos(q ⊙ A_m, K_m): neither softmax nor choice, every component takes part.

    As (q ⊙ A)·K = q·(A ⊙ K) and |q ⊙ A|² = q²·A², no tensor of (B, G, M, D) is needed.

    Args:
        query: q, (B, D).
        attention: A, (G, M, D) for G blocks and M components.
        keys: K, (G, M, D).

    Returns:
        (B, G, M).
    """
    product = torch.einsum("bd,gmd->bgm", query, attention * keys)
    squared = torch.einsum("bd,gmd->bgm", query.square(), attention.square())
    length = squared.clamp(min=TINY**2).sqrt() * keys.norm(dim=-1).clamp(min=TINY)
    return product / length
