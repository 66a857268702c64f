"""A token prompt of its own for every domain, found by the nearest centroid.

The frame of S-Prompts and PINA, which differ in the classifier on top.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView
from hashprompt.methods.frames.options import DomainConfig
from hashprompt.methods.frames.prompt_tuning import training_phase
from hashprompt.parts.centroids import Centroids
from hashprompt.parts.slots import TaskSlots, uniform


class DomainPrompts(Method):
    """One prompt per domain, trained on that domain alone and frozen afterwards."""

    keeps: tuple[str, ...] = ("prompts.frozen", "selector.")
    stores = "routers: selector"
    config: DomainConfig

    def __init__(self, config: DomainConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        dim = backbone.dim
        self.prompts = TaskSlots((config.prompt_length, dim), uniform(dim**-0.5))
        self.selector = Centroids(config.centroids, dim, config.distance)

    # What a member of the family adds. -----------------------------------------------------

    def logits(self, tokens: Tensor, domain: Tensor | None) -> Tensor:
        """Scores of all classes (B, C) with what belongs to the domains (B,) of the images.

        Args:
            tokens: (B, N, D) embedded images.
            domain: None means the newest, of which these are training images.
        """
        raise NotImplementedError

    def head_parameters(self, task: TaskView) -> list[nn.Parameter]:
        """What is trained at the head's rate."""
        raise NotImplementedError

    def prompt_parameters(self) -> list[nn.Parameter]:
        """What is trained at the prompt's rate."""
        return [self.prompts.current]

    def weight_decay(self, task: TaskView) -> float:
        """Of everything that is trained on the task."""
        return self.config.weight_decay

    def describe_task(self, task: TaskView) -> Tensor:
        """Features (N, D) of the training images, to find the domain's centroids."""
        return task.features()

    def describe(self, images: Tensor, plain: Tensor | None) -> Tensor:
        """The same (B, D) of any images, to compare with centroids."""
        return self.backbone(images) if plain is None else plain

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.prompts.add(copy_last=False)

    def phases(self, task: TaskView) -> list[Phase]:
        return [
            training_phase(
                self.config,
                self._step,
                self.prompt_parameters(),
                self.head_parameters(task),
                self.weight_decay(task),
            ),
            Phase("centroids", work=lambda: self.selector.add(self.describe_task(task))),
        ]

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.logits(self.backbone.embed(batch.inputs), None)
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        domain = self.selector.nearest(self.describe(images, plain))
        return Prediction(self.logits(self.backbone.embed(images), domain), domain)
