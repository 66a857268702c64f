"""Labelled images: the form of every data source before it is cut into tasks."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hashprompt.data.reading.image_stores import Photos, pixel_digest


@dataclass(frozen=True)
class ImageTable:
    """Images with labels, and domains where there are any.

    Args:
        images: (N, 3, H, W) uint8, or N photos of different sizes.
        labels: (N,) int64 class ids.
        domains: (N,) int64 domain ids, for domain-incremental sources only.
    """

    images: Tensor | Photos
    labels: Tensor
    domains: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def digests(self) -> list[bytes]:
        """SHA-256 of each image."""
        if isinstance(self.images, Photos):
            return self.images.digests()
        return [pixel_digest(image) for image in self.images]

    def select(self, rows: Tensor) -> "ImageTable":
        """The table of the given rows (indices or a mask)."""
        images = self.images
        chosen = images.select(rows) if isinstance(images, Photos) else images[rows]
        domains = None if self.domains is None else self.domains[rows]
        return ImageTable(chosen, self.labels[rows], domains)


def concatenate(tables: Sequence[ImageTable]) -> ImageTable:
    """Tables of one source as one, without domains."""
    labels = torch.cat([table.labels for table in tables])
    photos = [table.images for table in tables if isinstance(table.images, Photos)]
    if photos:  # of one source, so of one store
        rows = torch.cat([images.rows for images in photos])
        return ImageTable(Photos(photos[0].store, rows), labels)
    tensors = [table.images for table in tables if isinstance(table.images, Tensor)]
    return ImageTable(torch.cat(tensors), labels)


@dataclass(frozen=True)
class ImageSource:
    """A data set: training and test images with names, and its usual division into tasks."""

    name: str
    train: ImageTable
    test: ImageTable
    class_names: tuple[str, ...]
    tasks: int
    domain_names: tuple[str, ...] = ()  # not empty: domain-incremental, one task per domain
    flip: bool = True  # whether a mirrored image still shows the same class
    task_of: tuple[int, ...] = ()  # class id -> task, if the data set fixes that
    shared_test: bool = False  # one test set for all tasks, of other domains than the training
    split: str | None = None  # name of the division into training and test images
    fingerprint: str | None = None  # default: from the content
    notes: tuple[str, ...] = ()  # for the user


def tensor_hash(*parts: Tensor | Photos | str) -> str:
    """SHA-256 over the bytes of tensors, photos and texts."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Photos):
            digest.update(part.content_hash().encode())
        elif isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
