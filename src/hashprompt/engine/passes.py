"""Forward passes without gradients over the images of a table."""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.data.dataset import ImageTable, tensor_hash
from hashprompt.data.reading.image_stores import PhotoBatch, Prefetch
from hashprompt.data.streams.stream import TaskData
from hashprompt.data.transforms.views import Views
from hashprompt.engine.feature_cache import FeatureCache
from hashprompt.errors import UserError
from hashprompt.methods.base import Batch, View
from hashprompt.options.run import RunOptions

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# In a pass on a CPU: matrix products of fewer rows give other bits (with AVX-512 below 16).
MIN_IMAGES = 16
S = TypeVar("S")
T = TypeVar("T")


class Passes:
    """Forward passes over images, in batches; every device passes over all of them.

    Args:
        backbone: for frozen features.
        views: transforms of images.
        options: batch size and precision.
        fabric: the devices.
        on_images: is called before each batch, with the number of images done and of all images.
    """

    def __init__(
        self,
        backbone: LoadedBackbone,
        views: Views,
        options: RunOptions,
        fabric: "Fabric",
        on_images: Callable[[int, int], None],
    ) -> None:
        self.backbone, self.views, self.options = backbone, views, options
        self.fabric, self._on_images = fabric, on_images
        self._plain: dict[int, Tensor] = {}
        self._on_cpu = fabric.device.type == "cpu"
        # A GPU's bits depend on the shape of the batch, which is therefore always the same there.
        where = "cpu" if self._on_cpu else [fabric.device.type, options.eval_batch_size]
        view = json.dumps([views.to_dict(), options.precision, where])
        self._cache = FeatureCache(tensor_hash(backbone.weights_sha256, view))

    def clean_batches(self, table: ImageTable) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows (B,) and clean views (B, 3, S, S) of all images, batch by batch."""
        return ((rows, self.views.clean(images)) for rows, images in self._batches(table))

    def batches(self, table: ImageTable, size: int, view: View) -> Iterator[Batch]:
        """A view of all images, in order; for passes with gradients."""
        for rows, images in self._batches(table, size):
            yield Batch(self.see(images, view), table.labels[rows].to(self.fabric.device))

    def raw(self, table: ImageTable, rows: Tensor) -> Tensor:
        """Pixels (n, 3, H, W) uint8 of some images; photos in the input size of the ViT."""
        images = table.images[rows.cpu()].to(self.fabric.device)
        if isinstance(images, Tensor):
            return images
        return self.views.raw(images).to(self.fabric.device)  # an empty batch is on no device

    def see(self, images: Tensor | PhotoBatch, view: View) -> Tensor:
        """A view (n, 3, S, S) of n raw images, (n, 3, H, W) or photos of several sizes."""
        return self.views.train(images) if view == "train" else self.views.clean(images)

    def _batches(
        self, table: ImageTable, size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor | PhotoBatch]]:
        """Rows and images of every batch."""
        size = size or self.options.eval_batch_size
        batches = Prefetch(table.images, torch.arange(len(table)).split(size))
        for number, rows in enumerate(batches.batches):
            self._on_images(number * size, len(table))
            yield rows, batches[number].to(self.fabric.device)
        self._on_images(len(table), len(table))

    def plain_features(self, table: ImageTable) -> Tensor:
        """Frozen features (N, D) of the clean view: computed once per image, and cached on disk."""
        if id(table) not in self._plain:  # tables live as long as the stream
            digests = table.digests()
            known = self._cache.find(digests)
            new = {d: row for row, d in enumerate(digests) if d not in known}
            if new:
                features = self._plain_pass(table.select(torch.tensor(list(new.values())))).cpu()
                self._cache.add(list(new), features)
                known.update(zip(new, features, strict=True))
            features = torch.stack([known[digest] for digest in digests])
            self._plain[id(table)] = features.to(self.fabric.device)
        return self._plain[id(table)]

    def _plain_pass(self, table: ImageTable) -> Tensor:
        """Features (N, D) of all images; their bits do not depend on the other images."""
        counter = self.backbone.model.passes
        before = counter["plain"]
        if self._on_cpu:
            size = max(MIN_IMAGES, self.options.eval_batch_size // torch.get_num_threads())
            batches = (images for _, images in self._batches(table, size))
            outputs = list(map_in_single_threads(self._plain_batch, batches))
        else:
            outputs = [self._plain_batch(images) for _, images in self._batches(table)]
        counter["plain"] = before + len(table)  # threads and fillers count too
        return _finite(torch.cat(outputs))

    @torch.no_grad()
    def _plain_batch(self, images: Tensor | PhotoBatch) -> Tensor:
        """Features (B, D) of B images, in a batch that is padded where its size changes bits."""
        seen = self.views.clean(images)
        fillers = max(0, (MIN_IMAGES if self._on_cpu else self.options.eval_batch_size) - len(seen))
        with self.fabric.autocast():
            filled = torch.cat([seen, seen[-1:].expand(fillers, -1, -1, -1)])
            return self.backbone.model(filled)[: len(seen)].float()

    @torch.no_grad()
    def map(
        self, table: ImageTable, function: Callable[[Tensor], Tensor], view: View = "clean"
    ) -> Tensor:
        """`function` over a view, the same (N, …) float on every device."""
        outputs = []
        for _, images in self._batches(table):
            seen = self.see(images, view)
            with self.fabric.autocast():
                outputs.append(function(seen).float())
        whole = self.fabric.broadcast(torch.cat(outputs))  # other devices may round otherwise
        return _finite(whole.to(self.fabric.device))


def _finite(features: Tensor) -> Tensor:
    if not features.isfinite().all():
        raise UserError("Non-finite features. Try a smaller lr, precision=32 or clip=1.")
    return features


class CurrentTask:
    """The current task, as methods see it: without old images and test images."""

    def __init__(self, data: TaskData, passes: Passes) -> None:
        self._data, self._passes = data, passes
        self.index, self.classes = data.index, data.classes
        self.labels = data.train.labels.to(passes.fabric.device)

    def features(self) -> Tensor:
        return self._passes.plain_features(self._data.train)

    def map(self, function: Callable[[Tensor], Tensor], view: View = "clean") -> Tensor:
        return self._passes.map(self._data.train, function, view)

    def batches(self, size: int, view: View = "clean") -> Iterator[Batch]:
        return self._passes.batches(self._data.train, size, view)

    def raw(self, rows: Tensor) -> Tensor:
        return self._passes.raw(self._data.train, rows)

    def see(self, images: Tensor, view: View = "train") -> Tensor:
        return self._passes.see(images, view)


@contextmanager
def uncounted(passes: Counter[str]) -> Iterator[None]:
    """Do not count passes: they serve analysis only, or were counted before."""
    counted = Counter(passes)
    yield
    passes.clear()
    passes.update(counted)


def map_in_single_threads(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """`function` of each item, in order, on as many threads as torch would use for one item.

    If several threads share a matrix product, the last bits of a row depend on its place in the
    batch, because the library splits the matrix between them. In a product on a single thread,
    they do not (measured, from four rows on).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # also for the threads that begin now
    waiting: deque[Future[T]] = deque()
    try:
        with ThreadPoolExecutor(threads, "features") as pool:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:  # limits the images in memory
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(threads)
