"""What a method stores beside its head on a ViT-B, without the ViT-B."""

from types import SimpleNamespace
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer

from hashprompt.backbone import Backbone
from hashprompt.methods import METHODS


def prompt_machinery(name: str, tasks: int = 10, classes: int = 100, **options: Any) -> int:
    """Numbers in prompts and routers after so many tasks."""
    with torch.device("meta"):
        vit_b = VisionTransformer(embed_dim=768, depth=12, num_heads=12, num_classes=0)
    registered = METHODS[name]
    method = registered.load()(registered.config(**options), Backbone(vit_b))
    each = classes // tasks
    for t in range(tasks):
        own = tuple(range(t * each, (t + 1) * each))
        method.begin_task(SimpleNamespace(index=t, classes=own))  # type: ignore[arg-type]
    sizes = method.sizes()
    return sizes["prompts"] + sizes["routers"]
