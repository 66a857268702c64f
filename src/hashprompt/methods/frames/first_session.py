"""The backbone adapts to the first task and is frozen then: the frame of first-task adaptation.

A member of this family says what adapts, and what it reads off the adapted features of every task.
"""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Method, ParamGroup, Phase, TaskView, learning_rate_factor
from hashprompt.methods.frames.options import FirstSessionConfig
from hashprompt.methods.kinds import Optimizer
from hashprompt.parts.cosine import CosineHead
from hashprompt.parts.heads import GrowingLinear

ADAPTER_DROPOUT = 0.1  # of hidden units, while adapters are trained


class FirstSession(Method):
    """What adapts and a head of its own, trained on the first task by cross-entropy."""

    keeps: tuple[str, ...] = ("session_head.weight",)
    head: ClassVar[type[CosineHead | GrowingLinear]] = CosineHead
    optimizer: ClassVar[Optimizer] = "sgd"
    config: FirstSessionConfig

    def __init__(self, config: FirstSessionConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if self.adapts:
            self.session_head = self.head(backbone.dim)  # read in the first session only

    # What a member of the family adds. -----------------------------------------------------

    @property
    def adapts(self) -> bool:
        """Whether there is a first session at all."""
        return True

    def inject(self, training: bool) -> Injection:
        """What adapts the backbone, in its training or afterwards."""
        raise NotImplementedError

    def rate_factor(self, epoch: float, epochs: float) -> float:
        """The rate of an epoch over the first one's."""
        return learning_rate_factor("cosine", epoch, epochs)

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        if self.adapts and task.index == 0:
            self.session_head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        """The first session, if this is its task; a member adds what it does with every task."""
        config = self.config
        adapt = Phase(
            "adapt",
            step=self._step,
            groups=[ParamGroup(tuple(self.parameters()), config.lr, config.weight_decay)],
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer=self.optimizer,
            schedule=self.rate_factor,
        )
        return [adapt] if self.adapts and task.index == 0 else []

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.session_head(self.features(batch.inputs, training=True))
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def features(self, images: Tensor, training: bool = False) -> Tensor:
        """Adapted features (B, D) of images (B, 3, S, S)."""
        return self.backbone(images, self.inject(training))
