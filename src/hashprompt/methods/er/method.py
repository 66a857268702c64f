"""ER, experience replay: new images and stored ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

from dataclasses import replace

import torch.nn.functional as F

from hashprompt.methods.base import Batch, Losses, Phase, TaskView
from hashprompt.methods.er.config import ERConfig
from hashprompt.methods.frames.rehearsal import Rehearsal, offer, with_stored


class ER(Rehearsal[ERConfig]):
    """Cross-entropy over all classes, of new images and of as many from a reservoir."""

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        return [replace(train, record=lambda seen: offer(self.memory, seen, task, once=True))]

    def losses(self, batch: Batch, task: TaskView) -> Losses:
        count = self.config.replays(len(batch.labels))
        images, labels = with_stored(batch, self.memory, count, task)
        return {"ce": F.cross_entropy(self.logits(images), labels)}
