"""LAE: tuned values learn fast and are averaged slowly; the more confident answer counts.

Gao et al., ICCV 2023 ("learning, accumulation, ensemble"). The head of a new task trains first,
so that the tuned values are not moved by its random start.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

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
from hashprompt.parts.slots import uniform
from hashprompt.parts.trained_weights import Snapshot

Values = Mapping[str, Tensor]


class Lae(Method[LaeConfig]):
    """Online and offline tuning under one head."""

    stores = "prompts: online offline"

    def __init__(self, config: LaeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        self.online = nn.ParameterDict()  # θ
        for name, start in self.start().items():
            self.online[name] = nn.Parameter(start)
        self.offline = Snapshot(dict(self.online))  # θ̄, from the second task on
        self.head = GrowingLinear(backbone.dim)

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)
        if task.index > 0 and not self.offline.taken:
            self.offline.take(dict(self.online))

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
            features = self.features(batch.inputs, dict(self.online))
        logits = self.head(features)
        return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

    @contextmanager
    def _accumulate(self, _: object) -> Iterator[None]:
        """After every step θ̄ ← α θ̄ + (1 − α) θ."""
        yield
        online = self.online
        with torch.no_grad():
            for name, slow in self.offline.tensors().items():
                slow.lerp_(online[name], 1 - self.config.ema_decay)

    def features(self, images: Tensor, values: Values) -> Tensor:
        """Features (B, D) of images (B, 3, S, S) under online or offline values."""
        return self.backbone(images, self.inject(values, len(images)))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Log of the larger of both probabilities of each class."""
        both = [dict(self.online), *([self.offline.tensors()] if self.offline.taken else [])]
        answers = [self.head(self.features(images, v)).log_softmax(1) for v in both]
        return Prediction(torch.stack(answers).amax(0))

    # What is tuned, by values: the fast ones or the slow ones. -----------------------------

    def start(self) -> dict[str, Tensor]:
        """Values that change little or nothing, and learned scales of each of P blocks."""
        config, places, dim = self.config, len(self.blocks), self.backbone.dim
        if config.pet == "adapter":
            width = config.adapter_width
            down, up = torch.empty(places, dim + 1, width), torch.zeros(places, width + 1, dim)
            fill_down(down)
            return {"down": down, "up": up, "scale": torch.ones(places)}
        scale = torch.ones(places, 2)
        if config.pet == "lora":
            a = uniform(dim**-0.5)(torch.empty(places, 2, config.rank, dim))
            return {"a": a, "b": torch.zeros(places, 2, dim, config.rank), "scale": scale}
        prefix = torch.empty(places, 2, config.prompt_length, dim).uniform_(0, 0.01)
        return {"prefix": prefix, "scale": scale}

    def inject(self, values: Values, images: int) -> Injection:
        """The injection of online or offline values for a batch of `images` images."""
        scale = values["scale"][..., None, None]
        if self.config.pet == "adapter":  # attn(z) + s · W_up GELU(W_down z)
            layers = [f"blocks.{block}.attn" for block in self.blocks]
            down, up = values["down"], scale * values["up"]
            return Injection(edits=branches(layers, down, up, activation=F.gelu))
        if self.config.pet == "lora":  # W + s B A for the projections of keys and of values
            factors = zip(self.blocks, values["a"], scale * values["b"], strict=True)
            changed = {f"blocks.{i}.attn.qkv": joined_factors(a, b) for i, a, b in factors}
            return Injection(edits=low_rank(changed))
        # Keys and values before the block's own, with an attention that sums to 1 separately.
        scaled = scale * values["prefix"]
        each = zip(self.blocks, scaled.expand(images, *scaled.shape).unbind(1), strict=True)
        return Injection(prefix=dict(each), compensate=True)
