"""Images of differing sizes, indexed like a tensor: kept decoded, or decoded per batch."""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hashprompt.data.reading.images import ImageFile, file_digest, image_size, read_image
from hashprompt.data.reading.options import ReadOptions
from hashprompt.data.reading.threads import in_threads


class PhotoBatch(list[Tensor]):
    """B images (3, h, w) uint8, each of its own size."""

    def to(self, device: torch.device | str) -> "PhotoBatch":
        return PhotoBatch(image.to(device, non_blocking=True) for image in self)


class ImageStore(Protocol):
    """All images of a data set."""

    def read(self, index: int) -> Tensor: ...

    def digest(self, index: int) -> bytes: ...

    def size(self, index: int) -> tuple[int, int]: ...

    def name(self, index: int) -> str: ...


class Memory:
    """Decoded images end to end in one buffer, which costs no more than their pixels."""

    def __init__(self, sizes: Sequence[tuple[int, int]], names: Sequence[str] = ()) -> None:
        self.sizes, self.names = sizes, names
        self.starts = list(accumulate((3 * h * w for h, w in sizes), initial=0))
        self.pixels = torch.empty(self.starts[-1], dtype=torch.uint8)

    @classmethod
    def of(cls, *arrays: Tensor) -> "Memory":
        """Arrays (N, 3, H, W), one after the other."""
        store = cls([(a.shape[2], a.shape[3]) for a in arrays for _ in range(len(a))])
        torch.cat([a.flatten() for a in arrays], out=store.pixels)
        return store

    def read(self, index: int) -> Tensor:
        height, width = self.sizes[index]
        return self.pixels[self.starts[index] : self.starts[index + 1]].view(3, height, width)

    def size(self, index: int) -> tuple[int, int]:
        return self.sizes[index]

    def digest(self, index: int) -> bytes:
        return pixel_digest(self.read(index))

    def name(self, index: int) -> str:
        return self.names[index] if self.names else f"image {index}"


class Disk:
    """Images decoded whenever they are asked for."""

    def __init__(
        self, files: Sequence[ImageFile], reading: ReadOptions, names: Sequence[str]
    ) -> None:
        self.files, self.reading, self.names = files, reading, names

    def read(self, index: int) -> Tensor:
        return read_image(self.files[index], self.reading.short_side, self.reading.upright)

    def size(self, index: int) -> tuple[int, int]:
        return image_size(self.files[index], self.reading.short_side, self.reading.upright)

    def digest(self, index: int) -> bytes:
        settings = f"{self.reading.short_side} {self.reading.upright}".encode()
        return file_digest(self.files[index], settings)

    def name(self, index: int) -> str:
        return self.names[index]


class Photos:
    """Some rows of a store. `photos[rows]` decodes a batch; `select` only chooses."""

    def __init__(self, store: ImageStore, rows: Tensor) -> None:
        self.store, self.rows = store, rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def on_disk(self) -> bool:
        return isinstance(self.store, Disk)

    def __getitem__(self, rows: Tensor) -> PhotoBatch:
        chosen = self.rows[rows].tolist()
        read = in_threads(self.store.read, chosen) if self.on_disk else map(self.store.read, chosen)
        return PhotoBatch(read)

    def select(self, rows: Tensor) -> "Photos":
        return Photos(self.store, self.rows[rows])

    def names(self) -> list[str]:
        return [self.store.name(row) for row in self.rows.tolist()]

    def sizes(self) -> list[tuple[int, int]]:
        """(height, width) of each image."""
        return list(in_threads(self.store.size, self.rows.tolist()))

    def digests(self) -> list[bytes]:
        """SHA-256 of each image."""
        return list(in_threads(self.store.digest, self.rows.tolist()))

    def content_hash(self) -> str:
        """SHA-256 over the content of all images, in order."""
        return hashlib.sha256(b"".join(self.digests())).hexdigest()


def pixel_digest(image: Tensor | np.ndarray) -> bytes:
    """SHA-256 of the shape and the pixels of an image."""
    shape = f"{tuple(image.shape)}".encode()
    return hashlib.sha256(shape + np.asarray(image).tobytes()).digest()
