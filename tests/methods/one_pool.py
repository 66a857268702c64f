"""A small Hash, and its features told one image at a time."""

from typing import Any

import numpy as np
import torch
from by_hand import Task, small_backbone
from torch import Tensor

from hashprompt.methods.hash.method import Hash, HashConfig


def make_hash(**options: Any) -> tuple[Hash, list[Task]]:
    backbone = small_backbone()
    heads: dict[str, Any] = {"tii": "discriminant", "align": "discriminant"}
    sizes: dict[str, Any] = {"layers": (1, 2), "experts": 4, "prompt_length": 3, "batch_size": 4}
    method = Hash(
        HashConfig(**{**heads, **sizes, "lr": 5.0, "drift": "affine", **options}), backbone
    )
    return method, [Task(t, (2 * t, 2 * t + 1), backbone) for t in range(3)]


@torch.no_grad()
def under_router(method: Hash, images: Tensor, task: int) -> np.ndarray:
    """Features of one image after the other under the router of a task."""
    rows = [
        method.prompted(method.backbone.embed(image[None]), torch.tensor([task]))[0]
        for image in images
    ]
    return torch.stack(rows).double().numpy()
