"""Images of different sizes, indexed like a tensor: kept decoded, or decoded per batch."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from hashprompt.data.reading.images import (
    ImageFile,
    UnreadableImage,
    file_digest,
    image_size,
    read_image,
)
from hashprompt.data.reading.threads import map_images, reading_threads
from hashprompt.errors import UserError
from hashprompt.options.stream import ReadOptions

T = TypeVar("T")
UNREAD = torch.empty(3, 0, 0, dtype=torch.uint8)
MAX_LISTED = {"stop": 5, "skip": 100}  # unreadable files in a message, by the option `unreadable`


class PhotoBatch(list[Tensor]):
    """B images (3, h, w) uint8, of different sizes."""

    def to(self, device: torch.device | str) -> "PhotoBatch":
        return PhotoBatch(image.to(device, non_blocking=True) for image in self)


class DecodedImages:
    """Images (3, h, w) uint8 in memory."""

    def __init__(self, images: Sequence[Tensor], names: Sequence[str]) -> None:
        self.images, self.names = images, names

    def read(self, index: int) -> Tensor:
        return self.images[index]

    def size(self, index: int) -> tuple[int, int]:
        _, height, width = self.images[index].shape
        return height, width

    def digest(self, index: int) -> bytes:
        return pixel_digest(self.read(index))


class EncodedImages:
    """Image files that are decoded whenever they are needed."""

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


class Photos:
    """Some rows of a store. `photos[rows]` decodes a batch; `select` only chooses rows."""

    def __init__(self, store: DecodedImages | EncodedImages, rows: Tensor) -> None:
        self.store, self.rows = store, rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def on_disk(self) -> bool:
        return isinstance(self.store, EncodedImages)

    def __getitem__(self, rows: Tensor) -> PhotoBatch:
        chosen = self.rows[rows].tolist()
        mapped = reading_threads().map if self.on_disk else map
        return PhotoBatch(mapped(self.store.read, chosen))

    def select(self, rows: Tensor) -> "Photos":
        return Photos(self.store, self.rows[rows])

    def names(self) -> list[str]:
        return [self.store.names[row] for row in self.rows.tolist()]

    def sizes(self) -> list[tuple[int, int]]:
        """(height, width) of each image."""
        return list(reading_threads().map(self.store.size, self.rows.tolist()))

    def digests(self) -> list[bytes]:
        """SHA-256 of each image."""
        return list(reading_threads().map(self.store.digest, self.rows.tolist()))

    def content_hash(self) -> str:
        """SHA-256 over the content of all images, in order."""
        return hashlib.sha256(b"".join(self.digests())).hexdigest()


def pixel_digest(image: Tensor | np.ndarray) -> bytes:
    """SHA-256 of the shape and the pixels of an image."""
    shape = f"{tuple(image.shape)}".encode()
    return hashlib.sha256(shape + np.asarray(image).tobytes()).digest()


class Prefetch:
    """Batches of images by number; the next batch is decoded while one is used."""

    def __init__(self, images: Tensor | Photos, batches: Sequence[Tensor]) -> None:
        self.images, self.batches = images, batches
        self._next: tuple[int, list[Future[Tensor]]] = (-1, [])

    def __getitem__(self, number: int) -> Tensor | PhotoBatch:
        images = self.images
        if isinstance(images, Tensor) or not images.on_disk:
            return images[self.batches[number]]
        (started, futures), self._next = self._next, self._start(images, number + 1)
        if started != number:
            return images[self.batches[number]]
        return PhotoBatch(future.result() for future in futures)

    def _start(self, images: Photos, number: int) -> tuple[int, list[Future[Tensor]]]:
        if number >= len(self.batches):
            return -1, []
        rows = images.rows[self.batches[number]].tolist()
        return number, [reading_threads().submit(images.store.read, row) for row in rows]


def open_photos(
    files: Sequence[ImageFile],
    reading: ReadOptions,
    shown: Sequence[str] = (),
) -> tuple[Photos, list[int], tuple[str, ...]]:
    """Prepare images: decoded in memory if they fit, otherwise read from disk.

    Args:
        shown: their names in messages; an empty name stands for the path.

    Returns:
        The readable images, their places among the files, and notes for the user.
    """
    problems: dict[int, UnreadableImage] = {}
    names = [name or str(f) for name, f in zip(shown or [""] * len(files), files, strict=True)]
    encoded = EncodedImages(files, reading, names)

    def attempt(read: Callable[[int], T], index: int) -> T | None:
        try:
            return None if index in problems else read(index)
        except UnreadableImage as problem:
            problems[index] = problem
            return None

    places = range(len(files))
    sizes = map_images(partial(attempt, encoded.size), places, "looking at images")
    needed = sum(3 * size[0] * size[1] for size in sizes if size) / 1e9
    fits = needed <= reading.memory_gb
    images = []

    def decode(index: int) -> Tensor:
        image = attempt(encoded.read, index)
        return image if fits and image is not None else UNREAD

    # Images that stay on disk are decoded now only if unreadable ones must be known.
    if fits or reading.unreadable == "skip":
        images = list(map_images(decode, places, "reading images"))
    store = DecodedImages(images, names) if fits else encoded
    note = f"{len(files):,} images are kept decoded in memory ({needed:.2f} GB)."
    if not fits:
        note = (
            f"{len(files):,} images would take {needed:.1f} GB decoded, more than memory_gb="
            f"{reading.memory_gb:g}: they are decoded for every batch. A larger memory_gb, or "
            "short_side=256 (which changes the pixels a little), is faster."
        )
    notes = [note, _about_problems(problems, names, reading)] if problems else [note]
    kept = [index for index in places if index not in problems]
    return Photos(store, torch.tensor(kept, dtype=torch.int64)), kept, tuple(notes)


def _about_problems(
    problems: dict[int, UnreadableImage], names: Sequence[str], reading: ReadOptions
) -> str:
    limit = MAX_LISTED[reading.unreadable]
    shown = "; ".join(f"{names[i]} ({problems[i].reason})" for i in sorted(problems)[:limit])
    more = f"; and {len(problems) - limit} more" if len(problems) > limit else ""
    found = f"{len(problems)} of {len(names):,} images cannot be read: {shown}{more}."
    if reading.unreadable == "stop":
        raise UserError(f"{found} Replace or remove them, or use unreadable=skip.")
    return f"{found} They are left out."
