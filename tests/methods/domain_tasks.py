"""Domains of random images on a small ViT, and the engine's work without the engine."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.checks.steps import train_step
from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods import METHODS
from hashprompt.methods.base import Batch, Method

DIM, CLASSES = 16, 3
VIT_B: Any = SimpleNamespace(dim=768, depth=12)  # enough to count what is stored


class Domain:
    """Images of all classes; domains differ in their colour."""

    def __init__(self, index: int, backbone: Any = VIT_B) -> None:
        self.index, self.classes, self.backbone = index, tuple(range(CLASSES)), backbone
        self.labels = torch.arange(CLASSES).repeat(8)
        generator = torch.Generator().manual_seed(index)
        tint = torch.randn(3, 1, 1, generator=generator)
        self.images = 2 * tint + 0.5 * torch.randn(24, 3, 16, 16, generator=generator)

    def features(self) -> Tensor:
        return self.map(self.backbone)

    @torch.no_grad()
    def map(self, function: Callable[[Tensor], Tensor], view: str = "clean") -> Tensor:
        return torch.cat([function(part) for part in self.images.split(7)])


def small_backbone() -> Backbone:
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=DIM, depth=2, num_heads=2, num_classes=0
    )
    for parameter in vit.parameters():  # timm starts biases and tokens at zero: too easy
        torch.nn.init.normal_(parameter, std=0.2)
    return Backbone(vit)


@torch.enable_grad()
def learn(method: Method, domain: Any) -> None:
    """Two steps of training, then what is computed."""
    method.begin_task(domain)
    for phase in method.phases(domain):
        if phase.step is None:
            assert phase.work is not None
            phase.work()
            continue
        optimizer = make_optimizer(phase)
        for _ in range(2):
            train_step(phase, Batch(domain.images, domain.labels), optimizer)


def learned(name: str, domains: int = 3, **options: Any) -> tuple[Any, list[Domain]]:
    """A method after some domains, and these; the same call gives the same numbers."""
    registered = METHODS[name]
    backbone = small_backbone()
    method = registered.load()(registered.config(prompt_length=2, lr=0.5, **options), backbone)
    seen = [Domain(index, backbone) for index in range(domains)]
    for domain in seen:
        learn(method, domain)
    return method, seen


def mixed(domains: list[Domain]) -> Tensor:
    """Two images of every domain, in turns."""
    return torch.stack([domain.images[i] for i in range(2) for domain in domains])


def slow_feature(
    method: Any, image: Tensor, prompt: Tensor, after: Callable[[int, Tensor], Tensor] | None = None
) -> Tensor:
    """Feature (D,) of an image by timm's own blocks, the prompt between class token and patches."""
    vit = method.backbone.vit
    tokens = vit._pos_embed(vit.patch_embed(image[None]))[0]
    x = torch.cat((tokens[:1], prompt, tokens[1:]))[None]
    for index, block in enumerate(vit.blocks):
        x = block(x)
        x = x if after is None else after(index, x)
    return vit.norm(x)[0, 0]
