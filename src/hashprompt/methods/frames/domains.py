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
        self.selector = Centroids(config.centroids, dim, config.distance)

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

    def describe_task(self, task: TaskView) -> Tensor:
        """Features (N, D) of the training images, for the domain's centroids."""
        return task.features()

    def describe(self, images: Tensor, plain: Tensor | None) -> Tensor:
        """The same (B, D) of any images, to compare with centroids."""
        return self.backbone(images) if plain is None else plain

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.prompts.add(copy_last=False)

    def phases(self, task: TaskView) -> list[Phase]:
        prompts, head = self.prompt_parameters(), self.head_parameters(task)
        return [
            tuning_phase(self.config, self._step, prompts, head),
            Phase("centroids", work=lambda: self.selector.add(self.describe_task(task))),
        ]

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(self.backbone.embed(batch.inputs), None)
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        domain = self.selector.nearest(self.describe(images, plain))
        return Prediction(self.logits(self.backbone.embed(images), domain), domain)
