"""CODA-Prompt: a prompt is a sum of components, weighted by how the image attends to each.

Smith et al., CVPR 2023. Every task adds components of its own; those of earlier tasks are frozen
but still take part.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import MethodInfo, Schedule, TaskView, blocks_of, register
from hashprompt.methods.tuning import Prompted, PromptTuning, TuningConfig
from hashprompt.parts.orthogonal import OrthogonalSlots, orthogonality_penalty

TINY = 1e-12


class CodaConfig(TuningConfig):
    """Options of CODA-Prompt."""

    epochs: int = Field(20, ge=1, description="epochs of prompts and head on each task")
    lr: float = Field(1e-3, gt=0, description="rate of components, keys and attention vectors")
    scale_lr: bool = Field(False, description="whether rates are multiplied by batch_size/256")
    schedule: Schedule = Field("coda", description="of the rate")
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    layers: tuple[int, ...] = Field((1, 2, 3, 4, 5), description="prompted blocks, 1 is the first")
    components_per_task: int = Field(
        10, ge=1, description="new components of each task: M/T, M components for T tasks"
    )
    prompt_length: int = Field(
        4, ge=1, description="keys (and values) per component; the paper counts both together"
    )
    orthogonality: float = Field(0.0, ge=0, description="μ, weight of the orthogonality penalty")


@register("coda", CodaConfig)
class Coda(PromptTuning):
    """p = Σ_m a_m P_m with a_m = cos(q ⊙ A_m, K_m), for every prompted block."""

    info = MethodInfo(
        "CODA-Prompt", "prompts mixed from components that grow with the tasks", "CVPR 2023"
    )
    keeps = ("components.frozen", "keys.frozen", "attention.frozen")
    stores: ClassVar = {"components": "prompts", "keys": "routers", "attention": "routers"}
    config: CodaConfig

    def __init__(self, config: CodaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        own, dim = (len(self.blocks), config.components_per_task), backbone.dim
        self.components = OrthogonalSlots(*own, 2, config.prompt_length, dim)  # P
        self.keys = OrthogonalSlots(*own, dim)  # K
        self.attention = OrthogonalSlots(*own, dim)  # A

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        for vectors in (self.components, self.keys, self.attention):
            vectors.add(copy_last=False)

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> Prompted:
        components, keys = self.components.joined(), self.keys.joined()
        attention = self.attention.joined()
        weights = component_weights(query, attention, keys)
        prefix = torch.einsum("bgm,gmkld->bgkld", weights, components)
        losses = {}
        if training and self.config.orthogonality:
            all_vectors = (keys, attention, components.flatten(2))
            penalty = torch.stack([orthogonality_penalty(v) for v in all_vectors]).sum()
            losses["orthogonality"] = self.config.orthogonality * penalty
        return Prompted(
            Injection(prefix=dict(zip(self.blocks, prefix.unbind(1), strict=True))), losses
        )

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
