"""Batches of images, of which the next is decoded while one is used."""

from collections.abc import Sequence
from concurrent.futures import Future

from torch import Tensor

from hashprompt.data.reading.image_stores import PhotoBatch, Photos
from hashprompt.data.reading.threads import reading_threads


class Prefetch:
    """Batches of images by number; while one is used, the next is decoded."""

    def __init__(self, images: Tensor | Photos, batches: Sequence[Tensor]) -> None:
        self.images, self.batches = images, batches
        self._coming: tuple[int, list[Future[Tensor]]] = (-1, [])

    def __getitem__(self, number: int) -> Tensor | PhotoBatch:
        images = self.images
        if isinstance(images, Tensor) or not images.on_disk:
            return images[self.batches[number]]
        coming, self._coming = self._coming, self._start(images, number + 1)
        if coming[0] != number:
            return images[self.batches[number]]
        return PhotoBatch(future.result() for future in coming[1])

    def _start(self, images: Photos, number: int) -> tuple[int, list[Future[Tensor]]]:
        if number >= len(self.batches):
            return -1, []
        rows = images.rows[self.batches[number]].tolist()
        return number, [reading_threads().submit(images.store.read, row) for row in rows]
