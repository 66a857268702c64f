"""A small ViT, tasks of random images, and the engine's work without the engine."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.engine.optimization import make_optimizer, take_step
from hashprompt.methods import METHODS
from hashprompt.methods.base import Batch, Losses, Method, Phase, StepRecord
from hashprompt.parts.gaussians import ClassGaussians

DIM, DEPTH = 16, 2


def small_backbone(depth: int = DEPTH, lively: bool = True) -> Backbone:
    """A ViT of width 16.

    Args:
        lively: with larger weights; timm starts biases and tokens at zero, which is too easy.
    """
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=16, patch_size=8, embed_dim=DIM, depth=depth, num_heads=2, num_classes=0
    )
    for parameter in vit.parameters() if lively else ():
        nn.init.normal_(parameter, std=0.2)
    return Backbone(vit)


def vit_b() -> Backbone:
    """Shapes without numbers."""
    with torch.device("meta"):
        return Backbone(VisionTransformer(embed_dim=768, depth=12, num_heads=12, num_classes=0))


class Task:
    """Random images of given classes, as bytes, whose brightness leans towards their class.

    The train view of raw bytes is mirrored, with more contrast.

    Args:
        tint: how much the colour of the task differs from that of others, as domains do.
    """

    def __init__(
        self,
        index: int,
        classes: tuple[int, ...],
        backbone: Backbone | None = None,
        per_class: int = 6,
        tint: float = 0,
    ) -> None:
        self.index, self.classes, self.backbone = index, classes, backbone
        self.labels = torch.tensor(classes).repeat(per_class)
        generator = torch.Generator().manual_seed(index)
        brightness = 10 * self.labels[:, None, None, None]
        noise = torch.randint(100, (len(self.labels), 3, 16, 16), generator=generator)
        colour = tint * torch.rand(3, 1, 1, generator=generator)
        self.pixels = (brightness + noise + colour).clamp(0, 255).to(torch.uint8)
        self.images = self.see(self.pixels, "clean")
        self.views: list[str] = []  # that `map` was asked for
        self.read: list[int] = []  # rows that `raw` was asked for

    def features(self) -> Tensor:
        assert self.backbone is not None, "not needed here"
        return self.map(self.backbone)

    @torch.no_grad()
    def map(self, function: Callable[[Tensor], Tensor], view: str = "clean") -> Tensor:
        self.views.append(view)
        return torch.cat([function(part) for part in self.see(self.pixels, view).split(5)])

    def batches(self, size: int, view: str = "clean") -> Iterator[Batch]:
        for rows in torch.arange(len(self.labels)).split(size):
            yield Batch(self.see(self.pixels[rows], view), self.labels[rows])

    def raw(self, rows: Tensor) -> Tensor:
        self.read += rows.tolist()
        return self.pixels[rows]

    def see(self, images: Tensor, view: str = "train") -> Tensor:
        assert images.dtype == torch.uint8
        seen = images.float() / 50 - 1
        return 2 * seen.flip(-1) if view == "train" else seen


def make(name: str, depth: int = DEPTH, **options: Any) -> Any:
    """A method that has learned nothing."""
    registered = METHODS[name]
    return registered.load()(registered.config(**options), small_backbone(depth))


def batches_of(phase: Phase, task: Task) -> Iterator[tuple[Batch, Tensor]]:
    """The batches of an epoch, with their rows in the task."""
    if phase.draw is not None:
        yield from ((batch, torch.empty(0)) for batch in phase.draw())
        return
    rows = torch.arange(len(task.labels)) if phase.rows is None else phase.rows
    for part in rows[torch.randperm(len(rows))].split(phase.batch_size):
        views = [task.see(task.pixels[part], phase.view) for _ in range(phase.views)]
        yield Batch(torch.cat(views), task.labels[part]), part


def carry_out(phase: Phase, task: Task, epochs: int | None = None, lr: float | None = None) -> None:
    """One phase, as the engine does it.

    Args:
        epochs: instead of the phase's own; its clean images are then one batch.
        lr: instead of the phase's own rates.
    """
    if phase.work is not None:
        phase.work()
        return
    optimizer = make_optimizer(phase)
    for group in optimizer.param_groups:
        # Gradients of so small a ViT are near Adam's usual ε, which would blur comparisons.
        group |= {"eps": 1e-14} | ({"lr": lr} if lr else {})
    everything = [(Batch(task.images, task.labels), torch.arange(len(task.labels)))]
    for epoch in range(epochs or phase.epochs):
        whole = epochs is not None and phase.draw is None
        for batch, rows in everything if whole else batches_of(phase, task):
            train_step(phase, batch, optimizer, rows, epoch)


@torch.enable_grad()
def train_step(
    phase: Phase,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    rows: Tensor | None = None,
    epoch: int = 0,
) -> Losses:
    """A step of training; returns the losses."""
    optimizer.zero_grad()
    losses, context, outputs = take_step(phase, batch)
    torch.stack(list(losses.values())).sum().backward()
    with phase.update(context) if phase.update else nullcontext():
        optimizer.step()
    if phase.record is not None and rows is not None:
        phase.record(StepRecord(rows, epoch, None if outputs is None else outputs.detach()))
    return losses


def learn(method: Method, *tasks: Any, epochs: int | None = 2) -> None:
    """All phases of tasks; see `carry_out`."""
    for task in tasks:
        method.begin_task(task)
        for phase in method.phases(task):
            carry_out(phase, task, epochs)
        method.end_task(task)


def learned(name: str, *parts: tuple[int, ...], tint: float = 0, **options: Any) -> tuple[Any, Any]:
    """A method after tasks of these classes, and these; the same call gives the same numbers."""
    method = make(name, **options)
    tasks = [Task(i, classes, method.backbone, tint=tint) for i, classes in enumerate(parts)]
    learn(method, *tasks)
    return method, tasks


def learned_domains(name: str, count: int = 3, **options: Any) -> tuple[Any, Any]:
    """A method after tasks of the same three classes in other colours, and these."""
    small = {"prompt_length": 2, "lr": 0.5}
    return learned(name, *[(0, 1, 2)] * count, tint=150, **small, **options)


def mixed(tasks: list[Task]) -> Tensor:
    """Two images of every task, in turns."""
    return torch.stack([task.images[i] for i in range(2) for task in tasks])


def step_losses(method: Method, task: Any, phase: str = "train") -> dict[str, Tensor]:
    """The losses of all clean images of a task in a phase."""
    step = next(p for p in method.phases(task) if p.name == phase).step
    found: Any = step(Batch(task.images, task.labels)) if step else {}
    return found if isinstance(found, dict) else found.losses


def prompt_machinery(name: str, tasks: int = 10, classes: int = 100, **options: Any) -> int:
    """Values that a method stores on a ViT-B in prompts and routers after so many tasks."""
    registered = METHODS[name]
    method = registered.load()(registered.config(**options), vit_b())
    each = classes // tasks
    for index in range(tasks):
        method.begin_task(Task(index, tuple(range(index * each, (index + 1) * each)), None, 1))  # type: ignore[arg-type]
    sizes = method.sizes()
    return sizes["prompts"] + sizes["routers"]


def cls_token(
    backbone: Backbone,
    image: Tensor,
    prompts: dict[int, Tensor],
    norm: bool = True,
    after: Callable[[int, Tensor], Tensor] = lambda _, x: x,
) -> Tensor:
    """CLS (D,) of an image (3, S, S) by timm's own blocks.

    Args:
        prompts: tokens (L, D) that join right behind CLS before their block, and stay.
        norm: whether the final norm is applied.
        after: what is made of the tokens behind each block.
    """
    vit = backbone.vit
    x = vit._pos_embed(vit.patch_embed(image[None]))
    for index, block in enumerate(vit.blocks):
        if index in prompts:
            x = torch.cat((x[:, :1], prompts[index][None], x[:, 1:]), dim=1)
        x = after(index, block(x))
    return (vit.norm(x) if norm else x)[0, 0]


def train(method: Method, task: Task, phase: str = "train", steps: int = 2) -> None:
    """Steps of one phase at a large rate."""
    chosen = next(p for p in method.phases(task) if p.name == phase)  # type: ignore[arg-type]
    carry_out(chosen, task, epochs=steps, lr=0.1)


def rehearsed(name: str, *parts: tuple[int, ...], **options: Any) -> tuple[Any, list[Task]]:
    """A method after tasks of these classes, learned in batches for as long as its options say."""
    small = {"batch_size": 8, "epochs": 2, "lr": 0.01, "scale_lr": False}
    method = make(name, **{**small, **options})
    tasks = [Task(i, classes) for i, classes in enumerate(parts)]
    learn(method, *tasks, epochs=None)
    return method, tasks


def begun(name: str, tasks: int = 3, **options: Any) -> Any:
    """A method in its last task of two classes, with random values where training left others."""
    method = make(name, depth=5, **options)
    for index in range(tasks):
        method.begin_task(Task(index, (2 * index, 2 * index + 1)))
        for parameter in method.parameters():
            nn.init.uniform_(parameter, -1, 1)
    return method


def images(count: int) -> tuple[Tensor, Tensor]:
    """Images (B, 3, 16, 16), and frozen features (B, 16) that look in all directions."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(count, 3, 16, 16, generator=generator)
    return pixels, torch.randn(count, DIM, generator=generator)


def add_cell(stats: ClassGaussians, features: Tensor) -> None:
    """Append the cell of these features (n, D)."""
    stats.add(features, torch.zeros(len(features)), (0,))
