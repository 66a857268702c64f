"""A memory of images: raw pixels as they came, never augmented, with what is known of each."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pixels = Callable[[Tensor], Tensor]  # rows (n,) -> raw images (n, 3, H, W) uint8


class Remembered(NamedTuple):
    """Images of the memory."""

    images: Tensor  # (n, 3, H, W) uint8
    labels: Tensor  # (n,)
    tasks: Tensor  # (n,) in which they came
    outputs: Tensor  # (n, K) numbers that were stored with them, zero behind `widths`
    widths: Tensor  # (n,) how many of them there are


class Memory(nn.Module):
    """At most so many images, of each class or in all.

    Images come one by one while a task is learned (`offer`), or are chosen after it (`keep`).

    Args:
        per_class: images of each class; 0: `total` counts.
        total: images in all.
        policy: of `offer`. `reservoir`: each image offered so far is kept with the same chance (of
            its class, if classes have places of their own). `balanced`: as many of each class as
            of any other; a full memory gives up an image of its largest class.
    """

    def __init__(
        self,
        per_class: int = 0,
        total: int = 0,
        policy: Literal["reservoir", "balanced"] = "reservoir",
    ) -> None:
        super().__init__()
        self.per_class, self.total, self.policy = per_class, total, policy
        # Their size, and how many outputs there are, the data will tell.
        self.register_buffer("images", torch.zeros(0, 3, 0, 0, dtype=torch.uint8))
        self.register_buffer("outputs", torch.zeros(0, 0))
        for name in ("labels", "tasks", "widths", "seen"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.long))
        self.images: Tensor  # (N, 3, H, W)
        self.outputs: Tensor  # (N, K)
        self.labels: Tensor  # (N,)
        self.tasks: Tensor  # (N,)
        self.widths: Tensor  # (N,)
        self.seen: Tensor  # (C,) images of each class that were offered

    def __len__(self) -> int:
        return len(self.labels)

    # Reading. ------------------------------------------------------------------------------

    def all(self) -> Remembered:
        """Everything."""
        return Remembered(self.images, self.labels, self.tasks, self.outputs, self.widths)

    def rows(self, rows: Tensor) -> Remembered:
        """The images (n,) of these rows."""
        return Remembered(*(part[rows] for part in self.all()))

    def draw(self, count: int) -> Remembered:
        """Random images, none of them twice; all if there are no more."""
        return self.rows(torch.randperm(len(self))[:count].to(self.labels.device))

    # Writing. ------------------------------------------------------------------------------

    def offer(
        self, labels: Tensor, pixels: Pixels, task: int, outputs: Tensor | None = None
    ) -> None:
        """Let images come, in this order.

        Args:
            labels: (B,).
            pixels: reads rows of these B images; only what is kept is read.
            task: in which they come.
            outputs: (B, K) to be stored with them.
        """
        self._count(labels)
        there = self.labels.tolist()
        offered = (self.seen - labels.bincount(minlength=len(self.seen))).tolist()
        taken: dict[int, int] = {}  # row of the memory -> row of the batch
        for row, label in enumerate(labels.tolist()):
            place = self._place(label, there, offered)
            offered[label] += 1
            if place is not None:
                there[place : place + 1] = [label]
                taken[place] = row
        if not taken:
            return
        places = torch.tensor(list(taken), device=labels.device)
        rows = torch.tensor(list(taken.values()), device=labels.device)
        new = self._made(
            pixels(rows), labels[rows], task, None if outputs is None else outputs[rows]
        )
        whole = self._joined(self.all(), self._empty_rows(new, len(there) - len(self)))
        whole, new = self._alike(whole, new)
        for held, value in zip(whole, new, strict=True):
            held[places] = value.to(held)
        self._hold(whole)

    def keep(self, labels: Tensor, pixels: Pixels, task: int, order: Tensor) -> None:
        """After a task: keep the first of each class, and of older ones as many as still fit.

        Args:
            labels: (N,) of the images of the task.
            pixels: reads rows of them.
            task: which it was.
            order: (N,) rows, those to be kept first.
        """
        self._count(labels)
        cells = set(zip(self.labels.tolist(), self.tasks.tolist(), strict=True))
        cells |= {(label, task) for label in labels.unique().tolist()}
        classes = [label for label, _ in cells]
        places = {
            label: self._places(len(set(classes))) // classes.count(label) for label in classes
        }
        new = _first(labels[order], places)
        old = torch.cat([_first(self.labels, places, self.tasks == t) for t in self._old_tasks()])
        chosen = order[new]
        made = self._made(pixels(chosen), labels[chosen], task, None)
        self._hold(self._joined(self.rows(old), made))

    def forget(self) -> None:
        """Hold nothing, and know of nothing that was offered."""
        for name, held in self.named_buffers():
            setattr(self, name, held[:0].clone())

    # ---------------------------------------------------------------------------------------

    def _count(self, labels: Tensor) -> None:
        known = max(len(self.seen), int(labels.max()) + 1)
        self.seen = F.pad(self.seen, (0, known - len(self.seen))) + labels.bincount(minlength=known)

    def _places(self, classes: int) -> int:
        """For each class."""
        return self.per_class or self.total // classes

    def _place(self, label: int, there: list[int], offered: list[int]) -> int | None:
        """The row for an image that comes now; None if it is not kept."""
        own = [row for row, other in enumerate(there) if other == label]
        if self.policy == "balanced":
            return self._balanced_place(label, own, there)
        held, most, before = (
            (own, self.per_class, offered[label])
            if self.per_class
            else (list(range(len(there))), self.total, sum(offered))
        )
        if len(held) < most:
            return len(there)
        drawn = int(torch.randint(before + 1, ()))
        return held[drawn] if drawn < most else None

    def _balanced_place(self, label: int, own: list[int], there: list[int]) -> int | None:
        classes = {*there, label}
        if len(own) >= self._places(len(classes)):
            return None
        if self.per_class or len(there) < self.total:
            return len(there)
        largest = max(sorted(classes), key=there.count)
        rows = [row for row, other in enumerate(there) if other == largest]
        return rows[int(torch.randint(len(rows), ()))]

    def _old_tasks(self) -> list[int]:
        return [*range(int(self.tasks.max()) + 1)] if len(self) else [0]

    def _made(
        self, images: Tensor, labels: Tensor, task: int, outputs: Tensor | None
    ) -> Remembered:
        found = labels.new_zeros(len(labels), 0).float() if outputs is None else outputs.float()
        widths = torch.full_like(labels, found.shape[1])
        return Remembered(images, labels, torch.full_like(labels, task), found, widths)

    def _empty_rows(self, like: Remembered, count: int) -> Remembered:
        return Remembered(*(part.new_zeros(count, *part.shape[1:]) for part in like))

    def _joined(self, old: Remembered, new: Remembered) -> Remembered:
        old, new = self._alike(old, new)
        return Remembered(*(torch.cat((a, b.to(a))) for a, b in zip(old, new, strict=True)))

    def _alike(self, old: Remembered, new: Remembered) -> tuple[Remembered, Remembered]:
        """With images of one size and as many outputs."""
        if not len(old.labels):
            old = old._replace(images=new.images[:0].to(old.labels.device))
        width = max(old.outputs.shape[1], new.outputs.shape[1])
        wide = [F.pad(each.outputs, (0, width - each.outputs.shape[1])) for each in (old, new)]
        return old._replace(outputs=wide[0]), new._replace(outputs=wide[1])

    def _hold(self, whole: Remembered) -> None:
        for name, value in whole._asdict().items():
            setattr(self, name, value)


def _first(labels: Tensor, places: dict[int, int], among: Tensor | None = None) -> Tensor:
    """Rows of the first images of each class, as many as it has places, in their order."""
    chosen = torch.zeros_like(labels, dtype=torch.bool)
    for label, most in places.items():
        own = labels == label if among is None else (labels == label) & among
        chosen[own.nonzero()[:most, 0]] = True
    return chosen.nonzero()[:, 0]


def herding_order(features: Tensor, labels: Tensor) -> Tensor:
    """Rows (N,) such that the first of each class have a mean near that of the class.

    Welling's herding as iCaRL uses it: the next image is the one that brings the mean of those
    chosen nearest to the mean of all, on features of length one.

    Args:
        features: (N, D).
        labels: (N,).
    """
    unit = F.normalize(features, dim=1)
    order: list[Tensor] = []
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        own = unit[rows]
        left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        total = torch.zeros_like(own[0])
        for count in range(1, len(rows) + 1):
            distance = (own.mean(0) - (total + own) / count).norm(dim=1)
            best = distance.masked_fill(~left, torch.inf).argmin()
            left[best] = False
            total = total + own[best]
            order.append(rows[best])
    return torch.stack(order)
