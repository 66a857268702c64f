"""A ViT and a task small enough for exact arithmetic, and the engine's step without the engine."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, tensor

from hashprompt.backbone import Backbone
from hashprompt.checks.steps import train_step
from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch, Method

DIM = 16
VIT_B: Any = SimpleNamespace(dim=768, depth=12, heads=12)  # enough for counting parameters


def tiny_backbone() -> Backbone:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=DIM, depth=4, num_heads=2, num_classes=0
    )
    return Backbone(vit)


class TinyTask:
    """A task of given classes with random images."""

    def __init__(self, index: int, classes: tuple[int, ...], per_class: int = 6) -> None:
        self.index, self.classes = index, classes
        self.labels = tensor(classes).repeat_interleave(per_class)
        generator = torch.Generator().manual_seed(index)
        self.images = torch.randn(len(self.labels), 3, 16, 16, generator=generator)
        self.views: list[str] = []  # those that `map` was asked for

    def features(self) -> Tensor:
        raise AssertionError("not needed here")

    @torch.no_grad()
    def map(self, function: Callable[[Tensor], Tensor], view: str = "clean") -> Tensor:
        self.views.append(view)
        return function(self.images)


def train(method: Method, task: TinyTask, phase: str = "train", steps: int = 2) -> None:
    """Steps of a phase at a large rate, as the engine does them."""
    chosen = next(p for p in method.phases(task) if p.name == phase)
    assert chosen.step is not None
    optimizer = make_optimizer(chosen)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for _ in range(steps):
        batches = chosen.draw() if chosen.draw else [Batch(task.images, task.labels)]
        for batch in batches:
            train_step(chosen, batch, optimizer)
