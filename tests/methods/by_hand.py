"""A small ViT, tasks of random images, and the engine's work without the engine."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.checks.steps import train_step
from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch, Method

DIM, DEPTH = 16, 2


def small_backbone() -> Backbone:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=DIM, depth=DEPTH, num_heads=2, num_classes=0
    )
    for parameter in vit.parameters():  # timm starts biases and tokens at zero: too easy
        torch.nn.init.normal_(parameter, std=0.2)
    return Backbone(vit)


def vit_b() -> Backbone:
    """Shapes without numbers."""
    with torch.device("meta"):
        return Backbone(VisionTransformer(embed_dim=768, depth=12, num_heads=12, num_classes=0))


class Task:
    """Random images of given classes, whose pixels lean a little towards their class."""

    def __init__(
        self, index: int, classes: tuple[int, ...], backbone: Any = None, per_class: int = 6
    ) -> None:
        self.index, self.classes, self.backbone = index, classes, backbone
        self.labels = torch.tensor(classes).repeat(per_class)
        generator = torch.Generator().manual_seed(index)
        noise = torch.randn(len(self.labels), 3, 16, 16, generator=generator)
        self.images = noise + self.labels[:, None, None, None]

    def features(self) -> Tensor:
        return self.map(self.backbone)

    @torch.no_grad()
    def map(self, function: Callable[[Tensor], Tensor], view: str = "clean") -> Tensor:
        return torch.cat([function(part) for part in self.images.split(5)])

    def batches(self, size: int, view: str = "clean") -> Iterator[Batch]:
        for rows in torch.arange(len(self.labels)).split(size):
            yield Batch(self.images[rows], self.labels[rows])


def learn(method: Method, task: Any, steps: int = 2) -> None:
    """All phases of a task; a training phase takes so many steps with the whole task."""
    method.begin_task(task)
    for phase in method.phases(task):
        if phase.work is not None:
            phase.work()
            continue
        assert phase.step is not None
        optimizer = make_optimizer(phase)
        for group in optimizer.param_groups:
            # Gradients of so small a ViT are near Adam's usual ε, which would blur comparisons.
            group["eps"] = 1e-14
        for _ in range(steps):
            train_step(phase, Batch(task.images, task.labels), optimizer)
    method.end_task(task)
