"""A memory of images: raw pixels, never augmented, with labels, tasks and outputs."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.errors import UserError

Policy = Literal["reservoir", "balanced"]
Pixels = Callable[[Tensor], Tensor]  # rows (n,) -> raw images (n, 3, H, W) uint8


class StoredImages(NamedTuple):
    """Images of the memory."""

    images: Tensor  # (n, 3, H, W) uint8
    labels: Tensor  # (n,)
    tasks: Tensor  # (n,) in which they came
    outputs: Tensor  # (n, K) numbers that were stored with them, zero behind `widths`
    widths: Tensor  # (n,) how many of them there are


class Memory(nn.Module):
    """A limited number of images, of each class or in total.

    Images come one by one while a task is learned (`offer`), or are chosen after it (`keep`).

    Args:
        per_class: images of each class.
        total: images in total; 0: `per_class` counts.
        policy: of `offer`. `reservoir`: all images offered so far (of a class, if each class has
            separate places) are kept with equal probability. `balanced`: equally many of each
            class; a full memory gives up an image of its largest class.
    """

    def __init__(self, per_class: int = 0, total: int = 0, policy: Policy = "reservoir") -> None:
        super().__init__()
        self.per_class, self.total, self.policy = per_class, total, policy
        # Their size and the number of outputs follow from the data.
        self.images: Tensor = nn.Buffer(torch.zeros(0, 3, 0, 0, dtype=torch.uint8))  # (N, 3, H, W)
        self.outputs: Tensor = nn.Buffer(torch.zeros(0, 0))  # (N, K)
        none = torch.zeros(0, dtype=torch.long)
        self.labels: Tensor = nn.Buffer(none)  # (N,)
        self.tasks: Tensor = nn.Buffer(none)  # (N,)
        self.widths: Tensor = nn.Buffer(none)  # (N,)
        self.seen: Tensor = nn.Buffer(none)  # (C,) images of each class that were offered

    def __len__(self) -> int:
        return len(self.labels)

    # Reading. ------------------------------------------------------------------------------

    def rows(self, rows: Tensor) -> StoredImages:
        """The images of these rows (n,)."""
        return StoredImages(*(getattr(self, name)[rows] for name in StoredImages._fields))

    def draw(self, count: int, among: Tensor | None = None) -> StoredImages:
        """Random images, of some rows or all, none of them twice; all if there are no more."""
        rows = torch.arange(len(self), device=self.labels.device) if among is None else among
        return self.rows(rows[torch.randperm(len(rows))[:count].to(rows.device)])

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
        there, seen = self.labels.tolist(), self.seen.tolist()
        seen += [0] * (int(labels.max()) + 1 - len(seen))
        taken: dict[int, int] = {}  # row of the memory -> row of the batch
        for row, label in enumerate(labels.tolist()):
            place = self._place(label, there, seen)
            seen[label] += 1
            if place is not None:
                there[place : place + 1] = [label]
                taken[place] = row
        self.seen = torch.tensor(seen, device=labels.device)
        if taken:
            places = torch.tensor(list(taken), device=labels.device)
            rows = torch.tensor(list(taken.values()), device=labels.device)
            found = labels.new_zeros(len(labels), 0).float() if outputs is None else outputs
            self._write(places, _remembered(pixels(rows), labels[rows], task, found[rows]))

    def keep(self, labels: Tensor, pixels: Pixels, task: int, order: Tensor) -> None:
        """After a task: keep images of it, and fewer of older ones if these take their places.

        Tasks share the places of a class, and classes those of the memory: in turns each gets a
        place for its next image. So the first of an order stay longest.

        Args:
            labels: (N,) of the images of the task.
            pixels: reads rows of them; only what is kept is read.
            task: which it was.
            order: (n,) rows of images that may be kept, those to be kept first.
        """
        held = len(self)
        classes = self.labels.tolist() + labels[order].tolist()
        tasks = self.tasks.tolist() + [task] * len(order)
        turns = _ranks(zip(classes, tasks, strict=True))
        by_turn = sorted(range(len(classes)), key=turns.__getitem__)  # stable: older tasks first
        ranks = _ranks(classes[i] for i in by_turn)
        first = sorted(zip(ranks, by_turn, strict=True), key=lambda each: each[0])
        kept = [i for rank, i in first if self.total or rank < self.per_class]
        kept = sorted(kept[: self.total] if self.total else kept)
        chosen = torch.tensor(kept, device=labels.device)
        old, new = chosen[chosen < held], order[chosen[chosen >= held] - held]
        for name, part in self.rows(old)._asdict().items():
            setattr(self, name, part)
        none = labels.new_zeros(len(new), 0).float()
        places = torch.arange(len(old), len(kept), device=labels.device)
        self._write(places, _remembered(pixels(new), labels[new], task, none))

    # ---------------------------------------------------------------------------------------

    def _place(self, label: int, there: list[int], seen: list[int]) -> int | None:
        """The row for an image that comes now; None if it is not kept.

        Args:
            there: the classes of the images that are kept.
            seen: how many of each class were offered before.
        """
        own = [row for row, other in enumerate(there) if other == label]
        if self.policy == "balanced":
            return self._balanced_place(label, own, there)
        if self.total:
            rows, most, offered = list(range(len(there))), self.total, sum(seen)
        else:
            rows, most, offered = own, self.per_class, seen[label]
        if len(rows) < most:
            return len(there)
        drawn = int(torch.randint(offered + 1, ()))
        return rows[drawn] if drawn < most else None

    def _balanced_place(self, label: int, own: list[int], there: list[int]) -> int | None:
        if not self.total:
            return len(there) if len(own) < self.per_class else None
        classes = sorted({*there, label})
        if len(own) * len(classes) >= self.total:
            return None
        if len(there) < self.total:
            return len(there)
        largest = max(classes, key=there.count)
        rows = [row for row, other in enumerate(there) if other == largest]
        return rows[int(torch.randint(len(rows), ()))]

    def _write(self, places: Tensor, new: StoredImages) -> None:
        """Put images in their places, which may be behind the last one."""
        if not len(places):
            return
        if len(self) and self.images.shape[1:] != new.images.shape[1:]:
            old, now = ("×".join(map(str, x.shape[2:])) for x in (self.images, new.images))
            raise UserError(f"The memory holds images of {old} pixels, and these have {now}.")
        count = max(len(self), int(places.max()) + 1)
        for name, value in new._asdict().items():
            held = _grown(getattr(self, name), (count, *value.shape[1:]))
            held[places] = _grown(value.to(held), held[places].shape)
            setattr(self, name, held)


def _grown(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """With zeros behind its own numbers, at least of this shape."""
    shape = tuple(map(max, tensor.shape, shape))
    if tensor.shape == shape:
        return tensor
    grown = tensor.new_zeros(shape)
    grown[tuple(map(slice, tensor.shape))] = tensor
    return grown


def _remembered(images: Tensor, labels: Tensor, task: int, outputs: Tensor) -> StoredImages:
    tasks, widths = torch.full_like(labels, task), torch.full_like(labels, outputs.shape[1])
    return StoredImages(images, labels, tasks, outputs, widths)


def _ranks(groups: Iterable[Hashable]) -> list[int]:
    """How many of the same group come before each."""
    before: Counter[Hashable] = Counter()
    ranks = []
    for group in groups:
        ranks.append(before[group])
        before[group] += 1
    return ranks


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
