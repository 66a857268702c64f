"""Look at a data set before a run does: counts, sizes, broken images, repeated images."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.reading.image_stores import Photos
from hashprompt.data.reading.options import Track, untracked
from hashprompt.data.sets import SETS
from hashprompt.data.streams.names import EMBEDDED
from hashprompt.data.streams.sources import load_source
from hashprompt.data.streams.stream import cut_source
from hashprompt.errors import UserError
from hashprompt.options.stream import StreamOptions

UNEVEN = 10.0  # largest class over smallest, from which on it is worth a warning


@dataclass
class Checkup:
    """What was found. `problems` stop a run, `warnings` make its numbers doubtful."""

    source: ImageSource
    scenario: str
    tasks: int
    classes: list[tuple[str, int, int]]  # name, training images, test images
    sizes: dict[tuple[int, int], int]  # (height, width) -> images
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

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


def check(name: str, options: StreamOptions, track: Track = untracked) -> Checkup:
    """Examine what a stream's name, a folder or a file stands for; raises where nothing is left."""
    lenient = options.model_copy(update={"unreadable": "skip"})
    source = _load(name, lenient, track)
    broken = [note for note in source.notes if "cannot be read" in note]
    tables = (source.train, source.test)
    if not any(map(len, tables)):
        raise UserError(" ".join([f"There is no image in {name} that can be read.", *broken]))
    trained, tested = (torch.bincount(t.labels, minlength=len(source.class_names)) for t in tables)
    counts = zip(source.class_names, trained.tolist(), tested.tolist(), strict=True)
    found = Checkup(
        source,
        "domain" if source.domain_names else "class",
        source.tasks,
        [row for row in counts if row[1] or row[2]],
        _sizes(tables),
        notes=[note for note in source.notes if note not in broken],
        problems=broken,
    )
    _look_for_uneven_classes(found)
    _look_for_repeats(found)
    try:
        found.tasks = len(cut_source(source, name, lenient, seed=0).tasks)
    except UserError as error:
        found.problems.append(str(error))
    return found


def _load(name: str, options: StreamOptions, track: Track) -> ImageSource:
    """A bare folder is read as tasks of classes or, if classes come back, as domains."""
    if name in EMBEDDED or name in SETS or ":" in name or not Path(name).is_dir():
        return load_source(name, options, track)
    try:
        return load_source(f"folders:{name}", options, track)
    except UserError as error:
        if "is in two tasks" not in str(error):
            raise
        return load_source(f"domains:{name}", options, track)


def _sizes(tables: Sequence[ImageTable]) -> dict[tuple[int, int], int]:
    sizes: Counter[tuple[int, int]] = Counter()
    for table in tables:
        if isinstance(table.images, Tensor):
            sizes[table.images.shape[2], table.images.shape[3]] += len(table)
        else:
            sizes.update(table.images.sizes())
    return dict(sizes)


def _look_for_uneven_classes(found: Checkup) -> None:
    counts = [train for _, train, _ in found.classes]
    if min(counts) and max(counts) / min(counts) >= UNEVEN:
        smallest = min(found.classes, key=lambda row: row[1])
        found.warnings.append(
            f"Classes are uneven: {min(counts)} to {max(counts)} training images; the smallest is "
            f"{smallest[0]}."
        )
    untested = [name for name, _, test in found.classes if not test]
    if untested:
        listed = ", ".join(untested[:5])
        found.warnings.append(f"{len(untested)} classes have no test images: {listed}.")


def _look_for_repeats(found: Checkup) -> None:
    """Images of the same content in training and test, or under two labels."""
    first: dict[bytes, tuple[str, str, int]] = {}  # part, name and label where it was met first
    leaks, conflicts = [], []
    for part, table in (("training", found.source.train), ("test", found.source.test)):
        digests, names = table.digests(), _names(table, part)
        for digest, name, label in zip(digests, names, table.labels.tolist(), strict=True):
            part_before, before, label_before = first.setdefault(digest, (part, name, label))
            if part_before != part:
                leaks.append(f"{name} is {before}")
            if label_before != label:
                classes = found.source.class_names
                conflict = f"{name} ({classes[label]}) is {before} ({classes[label_before]})"
                conflicts.append(conflict)
    if leaks:
        found.warnings.append(
            f"{len(leaks)} test images are training images too, for example {leaks[0]}."
        )
    if conflicts:
        found.warnings.append(
            f"{len(conflicts)} images are there under another label too, for example "
            f"{conflicts[0]}."
        )


def _names(table: ImageTable, part: str) -> list[str]:
    if isinstance(table.images, Photos):
        return table.images.names()
    return [f"{part} image {row}" for row in range(len(table))]
