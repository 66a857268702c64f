"""LAE: tuned values learn fast and are averaged slowly; the more confident answer counts.

Gao et al., ICCV 2023 ("learning, accumulation, ensemble"). The head of a new task trains first,
so that the tuned values are not moved by its random start.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView, blocks_of
from hashprompt.methods.frames.prompt_tuning import tuning_phase
from hashprompt.methods.lae.config import LaeConfig
from hashprompt.parts.adapters import branches, fill_down
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.lora import joined_factors, low_rank
from hashprompt.parts.trained_weights import Snapshot

Values = Mapping[str, Tensor]


def make_pet(config: LaeConfig, backbone: Backbone) -> "Pet":
    """What is tuned by these options."""
    blocks = blocks_of(config.layers, backbone)
    if config.pet == "adapter":
        return AttentionAdapters(backbone, blocks, config.adapter_width)
    if config.pet == "lora":
        return KeyValueLora(backbone, blocks, config.rank)
    return CompensatedPrefixes(backbone, blocks, config.prompt_length)


class Lae(Method[LaeConfig]):
    """Online and offline tuning under one head."""

    stores = "prompts: online offline"

    def __init__(self, config: LaeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.online = make_pet(config, backbone)  # θ
        self.offline = Snapshot(self.online.values())  # θ̄, from the second task on
        self.head = GrowingLinear(backbone.dim)

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)
        if task.index > 0 and not self.offline.taken:
            self.offline.take(self.online.values())

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        parameters = self.online.parameters(), self.head.parameters()
        train = tuning_phase(config, lambda batch: self._step(batch, task), *parameters)
        if not self.offline.taken:
            return [replace(train, epochs=config.head_epochs + config.epochs)]
        head = replace(
            train,
            name="head",
            step=lambda batch: self._step(batch, task, tune=False),
            groups=train.groups[1:],
            epochs=config.head_epochs,
            update=self._accumulate,
        )
        return [head, replace(train, update=self._accumulate)]

    def _step(self, batch: Batch, task: TaskView, tune: bool = True) -> dict[str, Tensor]:
        with torch.set_grad_enabled(tune):
            features = self.features(batch.inputs, self.online.values())
        logits = self.head(features)
        return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

    @contextmanager
    def _accumulate(self, _: object) -> Iterator[None]:
        """After every step θ̄ ← α θ̄ + (1 − α) θ."""
        yield
        online = self.online.values()
        with torch.no_grad():
            for name, slow in self.offline.tensors().items():
                slow.lerp_(online[name], 1 - self.config.ema_decay)

    def features(self, images: Tensor, values: Values) -> Tensor:
        """Features (B, D) of images (B, 3, S, S) under online or offline values."""
        return self.backbone(images, self.online.inject(values, len(images)))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Log of the larger of both probabilities of each class."""
        both = [self.online.values(), *([self.offline.tensors()] if self.offline.taken else [])]
        answers = [self.head(self.features(images, v)).log_softmax(1) for v in both]
        return Prediction(torch.stack(answers).amax(0))


# Parameter-efficient tuning of some blocks. The tuned values are arguments, so that those of a slow
# copy can be used instead. Each place has learned scales that start at 1.


class Pet(nn.Module):
    """Tuned values of P blocks.

    Args:
        blocks: which, from 0.
        size: of the bottleneck, the rank, or the length.
    """

    scales: ClassVar[tuple[int, ...]] = ()  # scales of a place

    def __init__(self, backbone: Backbone, blocks: Sequence[int], size: int) -> None:
        super().__init__()
        self.blocks = list(blocks)
        self.fill(len(self.blocks), backbone.dim, size)
        self.scale = nn.Parameter(torch.ones(len(self.blocks), *self.scales))

    def fill(self, places: int, dim: int, size: int) -> None:
        """Make the parameters; at their start they change little or nothing."""
        raise NotImplementedError

    def values(self) -> dict[str, Tensor]:
        """What trains, by name."""
        return dict(self.named_parameters())

    def inject(self, values: Values, images: int) -> Injection:
        """The injection for a batch of `images` images."""
        raise NotImplementedError


class AttentionAdapters(Pet):
    """attn(z) + s · W_up GELU(W_down z), for z that the attention reads."""

    def fill(self, places: int, dim: int, size: int) -> None:
        self.down = nn.Parameter(torch.empty(places, dim + 1, size))
        self.up = nn.Parameter(torch.zeros(places, size + 1, dim))
        with torch.no_grad():
            fill_down(self.down)

    def inject(self, values: Values, images: int) -> Injection:
        layers = [f"blocks.{block}.attn" for block in self.blocks]
        up = values["scale"][:, None, None] * values["up"]
        return Injection(edits=branches(layers, values["down"], up, activation=F.gelu))


class KeyValueLora(Pet):
    """W + s B A for the projections of keys and of values."""

    scales = (2,)

    def fill(self, places: int, dim: int, size: int) -> None:
        bound = dim**-0.5
        self.a = nn.Parameter(torch.empty(places, 2, size, dim).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(places, 2, dim, size))

    def inject(self, values: Values, images: int) -> Injection:
        scaled = values["scale"][..., None, None] * values["b"]
        each = zip(self.blocks, values["a"], scaled, strict=True)
        factors = {f"blocks.{i}.attn.qkv": joined_factors(a, b) for i, a, b in each}
        return Injection(edits=low_rank(factors))


class CompensatedPrefixes(Pet):
    """Keys and values before the block's own, with an attention that sums to 1 separately."""

    scales = (2,)

    def fill(self, places: int, dim: int, size: int) -> None:
        self.prefix = nn.Parameter(torch.empty(places, 2, size, dim).uniform_(0, 0.01))

    def inject(self, values: Values, images: int) -> Injection:
        scaled = values["scale"][..., None, None] * values["prefix"]
        each = zip(self.blocks, scaled.expand(images, *scaled.shape).unbind(1), strict=True)
        return Injection(prefix=dict(each), compensate=True)
