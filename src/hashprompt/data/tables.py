"""Labelled images in memory: what every data source hands over before it is cut into tasks."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ImageTable:
    """Images and what is known of each.

    Args:
        images: (N, 3, H, W) uint8.
        labels: (N,) int64 class ids.
        domains: (N,) int64 domain ids, for domain-incremental sources only.
    """

    images: Tensor
    labels: Tensor
    domains: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Tensor) -> "ImageTable":
        """The table of the given rows (indices or a mask)."""
        domains = None if self.domains is None else self.domains[rows]
        return ImageTable(self.images[rows], self.labels[rows], domains)


@dataclass(frozen=True)
class Source:
    """A data set: training and test images with names, and how it is usually cut into tasks."""

    name: str
    train: ImageTable
    test: ImageTable
    class_names: tuple[str, ...]
    tasks: int
    domain_names: tuple[str, ...] = ()  # not empty: domain-incremental, one task per domain
    flip: bool = True  # whether a mirrored image still shows the same class
