"""Tasks for methods that train the ViT: images with gradients, raw pixels, views."""

from collections.abc import Iterator
from typing import Any

import torch
from by_hand import Task
from torch import Tensor

from hashprompt.methods.base import Batch


class VitTask(Task):
    """A task whose raw images are bytes, and whose views are the images themselves."""

    def __init__(self, index: int, classes: tuple[int, ...], per_class: int = 3) -> None:
        super().__init__(index, classes, per_class=per_class)
        generator = torch.Generator().manual_seed(100 + index)
        noise = torch.randint(0, 60, self.images.shape, generator=generator)
        self.pixels = (noise + 30 * self.labels[:, None, None, None]).to(torch.uint8)
        self.images = self.see(self.pixels)

    def batches(self, size: int, view: str = "clean") -> Iterator[Batch]:
        assert view == "clean"
        for images, labels in zip(self.images.split(size), self.labels.split(size), strict=True):
            yield Batch(images, labels)

    def raw(self, rows: Tensor) -> Tensor:
        return self.pixels[rows]

    def see(self, images: Tensor, view: str = "train") -> Tensor:
        return images.float() / 60 - 1


def losses_of(method: Any, task: VitTask) -> dict[str, Tensor]:
    """The losses of all images of a task in its first phase."""
    step = method.phases(task)[0].step
    assert step is not None
    return step(Batch(task.images, task.labels))
