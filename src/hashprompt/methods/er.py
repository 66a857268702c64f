"""ER, experience replay: new images and kept ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

from torch import Tensor

from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.configs.er import INFO
from hashprompt.methods.rehearsal import Rehearsal, remembering, with_replay


class ER(Rehearsal):
    """Cross-entropy of new and kept images; a reservoir."""

    info = INFO

    def phases(self, task: TaskView) -> list[Phase]:
        return [remembering(phase, self.memory, task) for phase in super().phases(task)]

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        images, labels = with_replay(batch, self.memory.draw(self.config.replays()), task)
        return {"ce": self.cross_entropy(self.logits(images), labels, task)}
