"""CIFAR-100: the official files, read by torchvision after their checksums are verified."""

import json
from importlib.resources import files
from pathlib import Path

import torch
from torchvision import datasets

from hashprompt.data.dataset import ImageSource, ImageTable
from hashprompt.data.reading.arrays import coarse_source, to_tensor
from hashprompt.data.sets.base import need, published_files
from hashprompt.options.stream import StreamOptions


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
    stored = json.loads((files("hashprompt.data.sets") / "cifar100_coarse.json").read_text())
    fine_to_coarse, names = torch.tensor(stored["fine_to_coarse"]), tuple(stored["names"])
    return coarse_source("cifar100-coarse", train, test, fine_to_coarse, names, "official")
