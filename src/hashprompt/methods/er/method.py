"""ER, experience replay: new images and kept ones in one batch.

Chaudhry et al., 2019: "On tiny episodic memories in continual learning".
"""

from hashprompt.methods.base import Phase, TaskView
from hashprompt.methods.frames.rehearsal import Rehearsal, remembering, replaying


class ER(Rehearsal):
    """Cross-entropy of new and kept images; a reservoir."""

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        train = replaying(train, self.memory, task, self.config)
        return [remembering(train, self.memory, task)]
