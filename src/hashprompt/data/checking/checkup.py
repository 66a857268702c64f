"""Check a data set before a run: counts, sizes, broken images, repeated images."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.reading.image_stores import Photos
from hashprompt.data.sets.base import SETS
from hashprompt.data.streams.names import EMBEDDED
from hashprompt.data.streams.sources import load_source
from hashprompt.data.streams.stream import cut_source
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

UNEVEN = 10.0  # ratio of the largest to the smallest class that is worth a warning


@dataclass
class Checkup:
    """The result of a check. `problems` stop a run, `warnings` make its numbers doubtful."""

    source: ImageSource
    scenario: str
    tasks: int
    classes: list[tuple[str, int, int]]  # name, training images, test images
    sizes: dict[tuple[int, int], int]  # (height, width) -> images
    notes: list[str]
    warnings: list[str]
    problems: list[str]

    @property
    def size_text(self) -> str:
        """`144 × 144 to 144 × 300, median short side 144`."""
        if len(self.sizes) == 1:
            ((height, width),) = self.sizes
            return f"all {width} × {height}"
        area = {size: size[0] * size[1] for size in self.sizes}
        (low_h, low_w), (high_h, high_w) = (f(area, key=area.__getitem__) for f in (min, max))
        short = median(min(size) for size, count in self.sizes.items() for _ in range(count))
        return f"{low_w} × {low_h} to {high_w} × {high_h}, median short side {short:g}"


def check(name: str, options: StreamOptions) -> Checkup:
    """Examine a stream, a folder or a file; raises if no image can be read."""
    lenient = options.model_copy(update={"unreadable": "skip"})
    source = _load(name, lenient)
    broken = [note for note in source.notes if "cannot be read" in note]
    tables = (source.train, source.test)
    if not any(map(len, tables)):
        raise UserError(" ".join([f"There is no image in {name} that can be read.", *broken]))
    trained, tested = (torch.bincount(t.labels, minlength=len(source.class_names)) for t in tables)
    counts = zip(source.class_names, trained.tolist(), tested.tolist(), strict=True)
    classes = [row for row in counts if row[1] or row[2]]
    found = Checkup(
        source,
        "domain" if source.domain_names else "class",
        source.tasks,
        classes,
        _sizes(tables),
        notes=[note for note in source.notes if note not in broken],
        warnings=[*_uneven_classes(classes), *_repeats(source)],
        problems=broken,
    )
    try:
        found.tasks = len(cut_source(source, name, lenient, seed=0).tasks)
    except UserError as error:
        found.problems.append(str(error))
    return found


def _load(name: str, options: StreamOptions) -> ImageSource:
    """Read a bare folder as tasks of classes or, if classes come back, as domains."""
    if name in EMBEDDED or name in SETS or ":" in name or not Path(name).is_dir():
        return load_source(name, options)
    try:
        return load_source(f"folders:{name}", options)
    except UserError as error:
        if "is in two tasks" not in str(error):
            raise
        return load_source(f"domains:{name}", options)


def _sizes(tables: Sequence[ImageTable]) -> dict[tuple[int, int], int]:
    sizes: Counter[tuple[int, int]] = Counter()
    for table in tables:
        if isinstance(table.images, Tensor):
            sizes[table.images.shape[2], table.images.shape[3]] += len(table)
        else:
            sizes.update(table.images.sizes())
    return dict(sizes)


def _uneven_classes(classes: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    smallest = min(classes, key=lambda row: row[1])
    low, high = smallest[1], max(train for _, train, _ in classes)
    if low and high / low >= UNEVEN:
        yield f"Classes are uneven: {low} to {high} training images; the smallest is {smallest[0]}."
    if untested := [name for name, _, test in classes if not test]:
        yield f"{len(untested)} classes have no test images: {', '.join(untested[:5])}."


def _repeats(source: ImageSource) -> Iterator[str]:
    """Warnings of equal images in training and test, or under two labels."""
    first: dict[bytes, tuple[str, str, int]] = {}  # part, name and label of the first occurrence
    leaks, conflicts = [], []
    for part, table in (("training", source.train), ("test", source.test)):
        names = [f"{part} image {row}" for row in range(len(table))]
        if isinstance(table.images, Photos):
            names = table.images.names()
        for digest, name, label in zip(table.digests(), names, table.labels.tolist(), strict=True):
            part_before, before, label_before = first.setdefault(digest, (part, name, label))
            if part_before != part:
                leaks.append(f"{name} is {before}")
            if label_before != label:
                now, then = source.class_names[label], source.class_names[label_before]
                conflicts.append(f"{name} ({now}) is {before} ({then})")
    if leaks:
        yield f"{len(leaks)} test images are training images too, for example {leaks[0]}."
    if conflicts:
        count = len(conflicts)
        yield f"{count} images also have another label, for example {conflicts[0]}."
