"""ER, experience replay: new images and kept ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

import torch
from torch import Tensor

from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.configs.er import INFO
from hashprompt.methods.rehearsal import Rehearsal


class ER(Rehearsal):
    """Cross-entropy of new and kept images; a reservoir."""

    info = INFO

    def phases(self, task: TaskView) -> list[Phase]:
        return [self.remembering(phase, task) for phase in super().phases(task)]

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        both = [batch, self.replayed(task)] if len(self.memory) else [batch]
        images, labels = (torch.cat(parts) for parts in zip(*both, strict=True))
        return {"ce": self.cross_entropy(self.logits(images), labels, task)}
