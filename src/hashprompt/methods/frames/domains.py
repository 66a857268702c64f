"""A separate token prompt for every domain, found by the nearest centroid.

The frame of S-Prompts and PINA, which differ in the classifier.
"""

from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView
from hashprompt.methods.frames.options import DomainConfig
from hashprompt.methods.frames.prompt_tuning import tuning_phase
from hashprompt.parts.centroids import Centroids
from hashprompt.parts.slots import TaskSlots, uniform

C = TypeVar("C", bound=DomainConfig)


class DomainPrompts(Method[C]):
    """One prompt per domain, trained on that domain only and frozen afterwards."""

    keeps: tuple[str, ...] = ("prompts.frozen", "selector.")
    stores = "routers: selector"

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        dim = backbone.dim
        self.prompts = TaskSlots((config.prompt_length, dim), uniform(dim**-0.5))
        self.selector = Centroids(config.centroids, dim)

    # Defined by each method. ---------------------------------------------------------------

    def logits(self, tokens: Tensor, domain: Tensor | None) -> Tensor:
        """Scores of all classes (B, C) with the prompts and heads of the domains (B,) of images.

        Args:
            tokens: (B, N, D) embedded images.
            domain: None means the newest, of which these are training images.
        """
        raise NotImplementedError

    def head_parameters(self, task: TaskView) -> list[nn.Parameter]:
        """Parameters with the learning rate of the head."""
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """Parameters with the learning rate of the prompt."""
        return [self.prompts.current]

    def describe(self, images: Tensor) -> Tensor:
        """Features (B, D) of images, to find the nearest centroid; frozen ones if `asks_plain`."""
        return self.backbone(images)

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.prompts.add(copy_last=False)

    def phases(self, task: TaskView) -> list[Phase]:
        prompts, head = self.prompt_parameters(), self.head_parameters(task)
        return [
            tuning_phase(self.config, self._step, prompts, head),
            Phase("centroids", work=lambda: self.learn_centroids(task)),
        ]

    def learn_centroids(self, task: TaskView) -> None:
        self.selector.add(task.features() if self.asks_plain else task.map(self.describe))

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(self.backbone.embed(batch.inputs), None)
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        described = self.describe(images) if plain is None or not self.asks_plain else plain
        domain = self.selector.nearest(described)
        return Prediction(self.logits(self.backbone.embed(images), domain), domain)
