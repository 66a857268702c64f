"""Tasks of raw pixels on a small ViT, and the engine's work without the engine, memory included."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from by_hand import small_backbone
from torch import Tensor

from hashprompt.engine.optimization import make_optimizer, take_step
from hashprompt.methods import METHODS
from hashprompt.methods.base import Batch, Method, Seen


class PixelTask:
    """Random uint8 images of given classes. The train view is mirrored, with more contrast."""

    def __init__(self, index: int, classes: tuple[int, ...], per_class: int = 6) -> None:
        self.index, self.classes = index, classes
        self.labels = torch.tensor(classes).repeat(per_class)
        generator = torch.Generator().manual_seed(index)
        noise = torch.randint(100, (len(self.labels), 3, 16, 16), generator=generator)
        self.pixels = (noise + 10 * self.labels[:, None, None, None]).to(torch.uint8)
        self.read: list[int] = []  # rows that `raw` was asked for

    def raw(self, rows: Tensor) -> Tensor:
        self.read += rows.tolist()
        return self.pixels[rows]

    def see(self, images: Tensor, view: str = "train") -> Tensor:
        assert images.dtype == torch.uint8
        seen = images.float() / 50 - 1
        return 2 * seen.flip(-1) if view == "train" else seen

    @torch.no_grad()
    def map(self, function: Callable[[Tensor], Tensor], view: str = "clean") -> Tensor:
        return torch.cat([function(part) for part in self.see(self.pixels, view).split(5)])


def method_of(name: str, **options: Any) -> Any:
    registered = METHODS[name]
    return registered.load()(registered.config(**options), small_backbone())


def steps_of(phase: Any, task: PixelTask) -> Iterator[tuple[Batch, Tensor]]:
    """The batches of an epoch, with their rows in the task."""
    if phase.draw is not None:
        yield from ((batch, torch.empty(0)) for batch in phase.draw())
        return
    rows = torch.arange(len(task.labels)) if phase.rows is None else phase.rows
    for part in rows[torch.randperm(len(rows))].split(phase.batch_size):
        views = [task.see(task.pixels[part], phase.view) for _ in range(phase.views)]
        yield Batch(torch.cat(views), task.labels[part]), part


def carry_out(phase: Any, task: PixelTask) -> None:
    """One phase, as the engine does it."""
    if phase.work is not None:
        phase.work()
        return
    optimizer = make_optimizer(phase)
    for epoch in range(phase.epochs):
        for batch, rows in steps_of(phase, task):
            optimizer.zero_grad()
            losses, _, outputs = take_step(phase, batch)
            torch.stack(list(losses.values())).sum().backward()
            optimizer.step()
            if phase.record is not None:
                phase.record(Seen(rows, epoch, None if outputs is None else outputs.detach()))


def learn(method: Method, *tasks: PixelTask) -> None:
    for task in tasks:
        method.begin_task(task)  # type: ignore[arg-type]
        for phase in method.phases(task):  # type: ignore[arg-type]
            carry_out(phase, task)


def learned(name: str, *parts: tuple[int, ...], **options: Any) -> tuple[Any, list[PixelTask]]:
    """After tasks of these classes."""
    torch.manual_seed(0)
    chosen = {"batch_size": 8, "epochs": 2, "lr": 0.01, "scale_lr": False, **options}
    method = method_of(name, **chosen)
    tasks = [PixelTask(i, classes) for i, classes in enumerate(parts)]
    learn(method, *tasks)
    return method, tasks
