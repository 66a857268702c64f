"""The backbone adapts to the first task and is frozen afterwards: first-task adaptation.

A method of this frame defines what adapts, and how it uses the adapted features of every task.
"""

from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, ParamGroup, Phase, TaskView
from hashprompt.methods.frames.options import FirstSessionConfig
from hashprompt.parts.heads import CosineHead, GrowingLinear

C = TypeVar("C", bound=FirstSessionConfig)


class FirstSession(base.Method[C]):
    """The adaptation and a separate head, trained on the first task by cross-entropy."""

    keeps: tuple[str, ...] = ("session_head.weight",)
    session_head: CosineHead | GrowingLinear  # used in the first session only

    def __init__(self, config: C, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if self.adapts:
            self.session_head = CosineHead(backbone.dim)

    # Defined by each method. ---------------------------------------------------------------

    @property
    def adapts(self) -> bool:
        """Whether there is a first session."""
        return True

    def inject(self, training: bool) -> Injection:
        """The adaptation of the backbone, in its training or afterwards."""
        raise NotImplementedError

    # The frame. ----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        if self.adapts and task.index == 0:
            self.session_head.grow(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        """The first session, if this is its task; a method adds its phases of every task."""
        if not self.adapts or task.index:
            return []
        adapt = base.training_phase(
            self.config,
            self._step,
            ParamGroup(self.parameters(), self.config.lr, self.config.weight_decay),
            name="adapt",
            optimizer="sgd",
            schedule="cosine",
        )
        return [adapt]

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.session_head(self.features(batch.inputs, training=True))
        return {"ce": F.cross_entropy(logits, batch.labels)}

    def features(self, images: Tensor, training: bool = False) -> Tensor:
        """Adapted features (B, D) of images (B, 3, S, S)."""
        return self.backbone(images, self.inject(training))
