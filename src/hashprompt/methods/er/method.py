"""ER, experience replay: new images and kept ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

from dataclasses import replace

from hashprompt.methods.base import Batch, Losses, Phase, Seen, TaskView
from hashprompt.methods.frames.rehearsal import Rehearsal, offer, with_kept


class ER(Rehearsal):
    """Cross-entropy of new images and of as many from a reservoir."""

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        return [replace(train, record=lambda seen: self.record(seen, task))]

    def losses(self, batch: Batch, task: TaskView) -> Losses:
        kept = self.memory.draw(self.config.replays(len(batch.labels)))
        images, labels, _ = with_kept(batch, kept, task)
        return {"ce": self.cross_entropy(self.logits(images), labels, task)}

    def record(self, seen: Seen, task: TaskView) -> None:
        """Offer the new images of a step to the reservoir, each once."""
        if seen.epoch == 0:
            offer(self.memory, seen, task)
