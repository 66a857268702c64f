"""CIFAR-100 and 5-Datasets: official files, most of them read and verified by torchvision."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor
from torchvision import datasets
from torchvision.datasets import mnist

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.reading.arrays import coarse_source, read_arrays, to_tensor
from hashprompt.data.reading.entries import HOLD_OUT, held_out, source_from
from hashprompt.data.reading.folders import walk_classes
from hashprompt.data.reading.image_stores import DecodedImages, PhotoBatch, Photos
from hashprompt.data.sets.base import need, published_files
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions, StreamOptions

COARSE = "cifar100_coarse.json"
CLASSES = 10  # of each of 5-Datasets
LETTERS_TEST_SHARE = 0.1
IDX = ("images-idx3", "labels-idx1")  # files of MNIST


FiveLoader = Callable[[Path], ImageSource]


def cifar_tables(
    kind: type[datasets.CIFAR10], root: Path
) -> tuple[ImageTable, ImageTable, tuple[str, ...]]:
    """Training and test images of CIFAR-10 or CIFAR-100, and the names of the classes."""
    names = [name for name, _ in (*kind.train_list, *kind.test_list)]
    need(root, *(f"{kind.base_folder}/{name}" for name in (*names, kind.meta["filename"])))
    with published_files(root / kind.base_folder):  # no file is unpickled before
        parts = [kind(str(root), train=train) for train in (True, False)]
    train, test = (
        ImageTable(to_tensor(part.data, kind.base_folder), torch.tensor(part.targets))
        for part in parts
    )
    return train, test, tuple(parts[0].classes)


def load_cifar100(root: Path, options: StreamOptions) -> ImageSource:
    train, test, names = cifar_tables(datasets.CIFAR100, root)
    return ImageSource("split-cifar100", train, test, names, tasks=10, split="official")


def load_coarse(root: Path, options: StreamOptions) -> ImageSource:
    train, test, _ = cifar_tables(datasets.CIFAR100, root)
    stored = json.loads((files("hashprompt.data.sets") / COARSE).read_text())
    fine_to_coarse, names = torch.tensor(stored["fine_to_coarse"]), tuple(stored["names"])
    return coarse_source("cifar100-coarse", train, test, fine_to_coarse, names, "official")


# 5-Datasets: SVHN, MNIST, CIFAR-10, notMNIST and Fashion-MNIST, a task of ten classes each.


def _idx(kind: type[datasets.MNIST]) -> FiveLoader:
    def load(root: Path) -> ImageSource:
        folder = root / kind.__name__ / "raw"
        parts = ("train", "t10k")
        raw = [folder / f"{part}-{what}-ubyte" for part in parts for what in IDX]
        need(folder, *(file.name for file in raw))
        try:
            train, test = (
                ImageTable(
                    mnist.read_image_file(str(images))[:, None].repeat(1, 3, 1, 1),
                    mnist.read_label_file(str(labels)),
                )
                for images, labels in (raw[:2], raw[2:])
            )
        except (AssertionError, LookupError, ValueError, RuntimeError, OSError) as error:
            raise UserError(f"The files in {folder} are damaged. Fetch them again.") from error
        if any(len(part.images) != len(part) for part in (train, test)):
            raise UserError(f"The files in {folder} do not belong together.")
        return ImageSource(kind.__name__, train, test, tuple(kind.classes), 1, split="official")

    return load


def _svhn(root: Path) -> ImageSource:
    need(root, "train_32x32.mat", "test_32x32.mat")
    with published_files(root / "train_32x32.mat"):
        parts = [datasets.SVHN(str(root), split=split) for split in ("train", "test")]
    train, test = (
        ImageTable(torch.from_numpy(part.data), torch.from_numpy(part.labels).long())
        for part in parts
    )
    names = tuple(map(str, range(CLASSES)))
    return ImageSource("SVHN", train, test, names, 1, split="official")


def _cifar10(root: Path) -> ImageSource:
    train, test, names = cifar_tables(datasets.CIFAR10, root)
    return ImageSource("CIFAR-10", train, test, names, 1, split="official")


def _letters(root: Path) -> ImageSource:
    """notMNIST as packed for continual learning (Train, Test), or the author's small archive."""
    packed, small = root / "notMNIST", root / "notMNIST_small"
    if (packed / "Train").is_dir():
        entries, split = walk_classes(packed, "classes")[0], "acl"
    else:
        need(root, small.name)
        inner = small / small.name  # in some archives there is a folder inside the folder
        entries, _ = walk_classes(inner if inner.is_dir() else small, "classes")
        split = f"{HOLD_OUT} 90/10"
        tested: set[str] = set()
        for _, of_class in groupby(entries, lambda entry: entry.label):
            tested |= held_out([entry.name for entry in of_class], LETTERS_TEST_SHARE)
        entries = [replace(e, part="test" if e.name in tested else "train") for e in entries]
    reading = ReadOptions(unreadable="skip", upright=False)  # a few are known to be broken
    return source_from("notMNIST", entries, reading, split=split)


FIVE: dict[str, tuple[str, FiveLoader]] = {
    "SVHN": ("svhn", _svhn),
    "MNIST": ("mnist", _idx(datasets.MNIST)),
    "CIFAR-10": ("cifar10", _cifar10),
    "notMNIST": ("notmnist", _letters),
    "Fashion-MNIST": ("fashion_mnist", _idx(datasets.FashionMNIST)),
}


def load_five(root: Path, options: StreamOptions) -> ImageSource:
    """Labels are 10 · task + label."""
    parts = {title: _one(root, *how) for title, how in FIVE.items()}
    tables = [getattr(part, name) for name in ("train", "test") for part in parts.values()]
    images = [image for table in tables for image in _images_of(table)]  # of 28 and 32 px
    store = DecodedImages(images, [f"image {index}" for index in range(len(images))])
    labels = [CLASSES * (i % len(parts)) + table.labels for i, table in enumerate(tables)]
    rows = torch.arange(len(images))
    table = ImageTable(Photos(store, rows), torch.cat(labels))
    count = sum(len(part.train) for part in parts.values())
    return ImageSource(
        "5-datasets",
        table.select(rows[:count]),
        table.select(rows[count:]),
        tuple(f"{title} {name}" for title, part in parts.items() for name in part.class_names),
        tasks=len(parts),
        task_of=tuple(i for i in range(len(parts)) for _ in range(CLASSES)),
        split=", ".join(f"{title}: {part.split}" for title, part in parts.items()),
        notes=tuple(note for part in parts.values() for note in part.notes),
    )


def _images_of(table: ImageTable) -> Tensor | PhotoBatch:
    images = table.images
    return images if isinstance(images, Tensor) else images[torch.arange(len(table))]


def _one(root: Path, key: str, load: FiveLoader) -> ImageSource:
    """A set from the published files, else from the one .npz file that is named after it."""
    try:
        return load(root)
    except FileNotFoundError:
        pattern = re.compile(rf"{key}(?![0-9]).*\.npz", re.IGNORECASE)
        packs = [path for path in sorted(root.glob("*.npz")) if pattern.fullmatch(path.name)]
        if not packs:
            raise
    if len(packs) > 1:
        raise UserError(f"Which one is meant: {', '.join(map(str, packs))}? Keep one of them.")
    source = read_arrays(packs[0])
    if len(source.class_names) != CLASSES:
        raise UserError(f"{packs[0]} has {len(source.class_names)} classes; expected {CLASSES}.")
    note = f"{packs[0].name}: {len(source.train):,} training, {len(source.test):,} test images."
    return replace(source, split=packs[0].name, notes=(note,))
