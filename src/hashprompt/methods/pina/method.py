"""PINA: one classifier for all domains; what is learned of a new one is how to fit it.

Wang et al., ECCV 2024. The classifier is trained on the first domain and frozen. Every later domain
has a prompt and adapters that align its features with the first one's.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import TaskView
from hashprompt.methods.frames.domains import DomainPrompts
from hashprompt.methods.pina.config import PinaConfig
from hashprompt.parts.adapters import TaskBranches, bottleneck
from hashprompt.parts.heads import GrowingLinear


class Pina(DomainPrompts[PinaConfig]):
    """A frozen classifier and alignment to it."""

    keeps = (*DomainPrompts.keeps, "head.", "adapters.down.frozen", "adapters.up.frozen", "order")
    stores = "prompts: adapters"

    def __init__(self, config: PinaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        dim, hidden = backbone.dim, config.hidden
        self.layers = [f"blocks.{i}" for i in range(backbone.depth)]
        places = backbone.depth if config.alignment == "deep" else 1
        self.head = GrowingLinear(dim)
        fills = xavier_and_zero_bias, xavier_and_zero_bias
        self.adapters = TaskBranches(places, dim, hidden, *fills)
        # One order for all images and all time. Public code draws another order for each image each
        # time, so two predictions for the same image may differ. A cycle moves every tile.
        cycle = torch.randperm(config.grid[0] * config.grid[1])
        self.order: Tensor = nn.Buffer(torch.empty_like(cycle).scatter(0, cycle, cycle.roll(1)))

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.adapters.add()
        if task.index == 0:
            self.head.grow(max(task.classes) + 1)
            for weights in self.adapters.current():
                nn.init.zeros_(weights)  # others align to this one

    def logits(self, tokens: Tensor, domain: Tensor | None) -> Tensor:
        down, up = self.adapters.of_images(domain, len(tokens))
        prompt = {0: self.prompts.of(domain, len(tokens))}
        if self.config.alignment == "deep":
            aligned = {
                layer: partial(align, down=down_, up=up_)
                for layer, down_, up_ in zip(self.layers, down, up, strict=True)
            }
            return self.head(self.backbone.encode(tokens, Injection(tokens=prompt, edits=aligned)))
        features = self.backbone.encode(tokens, Injection(tokens=prompt))[:, None]
        return self.head(align(features, features, down[0], up[0])[:, 0])

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts.current, *(self.adapters.current() if self.prompts.tasks > 1 else [])]

    def head_parameters(self, task: TaskView) -> list[nn.Parameter]:
        return list(self.head.parameters()) if task.index == 0 else []

    @property
    def asks_plain(self) -> bool:
        return not self.config.patch_shuffle

    def describe(self, images: Tensor) -> Tensor:
        if self.asks_plain:
            return super().describe(images)
        return self.backbone(shuffle_tiles(images, self.order, self.config.grid))


def align(_: Tensor, out: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """out + up(down(out)), without a non-linearity; shapes as in `bottleneck`."""
    return out + bottleneck(out, down, up, activation=None)


def xavier_and_zero_bias(layers: Tensor) -> None:
    """Fill (places, inputs + 1, outputs): Xavier-uniform weights, zero in the last row."""
    layers[:, -1] = 0
    for weight in layers[:, :-1]:
        nn.init.xavier_uniform_(weight)


def shuffle_tiles(images: Tensor, order: Tensor, grid: tuple[int, int]) -> Tensor:
    """Cut images into tiles and put tile `order[i]` in place i.

    Args:
        images: (B, 3, H, W).
        order: (rows · columns,) indices, tiles counted row by row.
        grid: rows and columns of tiles.

    Returns:
        (B, 3, H, W); what is left over below and to the right of whole tiles is zero.
    """
    (rows, columns), (height, width) = grid, images.shape[-2:]
    high, wide = height // rows, width // columns
    whole, size = images[..., : rows * high, : columns * wide], (high, wide)
    tiles = F.unfold(whole, size, stride=size)[..., order]  # (B, 3 · high · wide, tiles)
    placed = F.fold(tiles, whole.shape[2:], size, stride=size)
    return F.pad(placed, (0, width - columns * wide, 0, height - rows * high))
