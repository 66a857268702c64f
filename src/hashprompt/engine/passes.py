"""Passes without gradients over the images of a table."""

import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hashprompt.backbone.weights import LoadedBackbone
from hashprompt.data.cache import cached, tensor_hash
from hashprompt.data.dataset import ImageTable
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.reading.prefetch import Prefetch
from hashprompt.data.transforms.views import Views
from hashprompt.engine.settings import RunOptions
from hashprompt.errors import UserError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Passes:
    """Looks at images in batches, which the devices may share.

    Args:
        backbone: for plain features.
        views: what is seen of an image.
        options: batch size and precision.
        fabric: the devices.
        looked: told before each batch how many images are done, and of how many.
    """

    def __init__(
        self,
        backbone: LoadedBackbone,
        views: Views,
        options: RunOptions,
        fabric: "Fabric",
        looked: Callable[[int, int], None],
    ) -> None:
        self.backbone, self.views, self.options = backbone, views, options
        self.fabric, self.looked = fabric, looked
        self._plain: dict[int, Tensor] = {}

    def clean_batches(self, table: ImageTable) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows (B,) and clean views (B, 3, S, S) of all images."""
        return ((rows, self.views.clean(images)) for rows, images in self._batches(table, 0, 1))

    def _batches(
        self, table: ImageTable, rank: int, world: int
    ) -> Iterator[tuple[Tensor, Tensor | PhotoBatch]]:
        """Rows and images of every world-th batch."""
        ahead = Prefetch(table.images, torch.arange(len(table)).split(self.options.eval_batch_size))
        for number, rows in enumerate(ahead.batches):
            self.looked(number * self.options.eval_batch_size, len(table))
            if number % world == rank:
                yield rows, ahead[number].to(self.fabric.device)
        self.looked(len(table), len(table))

    def plain_features(self, table: ImageTable) -> Tensor:
        """Un-prompted features (N, D) of the clean view: computed once ever, kept on disk."""
        if id(table) not in self._plain:  # tables live as long as the stream
            view = json.dumps([self.views.to_dict(), self.options.precision])
            key = tensor_hash(self.backbone.weights_sha256, view, table.images)
            # Not shared among devices: one of them may find the file while another does not.
            model = self.backbone.model
            made = cached("features", key, lambda: {"x": self.map(table, model, shared=False)})
            self._plain[id(table)] = made["x"].to(self.fabric.device)
        return self._plain[id(table)]

    @torch.no_grad()
    def map(
        self,
        table: ImageTable,
        function: Callable[[Tensor], Tensor],
        view: Literal["train", "clean"] = "clean",
        shared: bool = True,
    ) -> Tensor:
        """`function` over a view, in batches shared among the devices; (N, …) float."""
        see = self.views.train if view == "train" else self.views.clean
        shared = shared and self.fabric.world_size > 1
        share = (self.fabric.global_rank, self.fabric.world_size) if shared else (0, 1)
        outputs = []
        for _, images in self._batches(table, *share):
            seen = see(images)
            with self.fabric.autocast():
                outputs.append(function(seen).float())
        whole = self._gather(outputs, len(table)) if shared else torch.cat(outputs)
        if not whole.isfinite().all():
            raise UserError(
                "Features are not finite: training diverged. Try a smaller lr, precision=32 or "
                "clip=1."
            )
        return whole

    def _gather(self, own: list[Tensor], count: int) -> Tensor:
        """All batches in order, when each device did every world-size-th one."""
        world, size = self.fabric.world_size, self.options.eval_batch_size
        shape: tuple[int, ...] = self.fabric.broadcast(tuple(own[0].shape[1:]) if own else ())
        rounds = math.ceil(count / size / world)
        whole = torch.zeros(rounds, size, *shape, device=self.fabric.device)
        for number, output in enumerate(own):
            whole[number, : len(output)] = output
        shared = self.fabric.all_gather(whole)  # (world, rounds, size, …)
        assert isinstance(shared, Tensor)
        return shared.transpose(0, 1).flatten(0, 2)[:count]
