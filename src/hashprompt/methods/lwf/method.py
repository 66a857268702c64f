"""LwF, learning without forgetting: the previous network is the teacher on new images.

Li and Hoiem, ECCV 2016. No old image is stored: the previous outputs are the targets.
"""

import torch
from torch import Tensor

from hashprompt.methods.base import Batch, TaskView
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.lwf.config import LwFConfig
from hashprompt.parts.heads import distillation


class LwF(FullFinetuning[LwFConfig]):
    """Cross-entropy over the classes of the task + α · distillation over all the teacher knew.

    Those are the old classes, or in domain-incremental streams all classes.
    """

    stores = "backbone: teacher"
    teaches = True

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        logits = self.logits(batch.inputs)
        losses = {"ce": self.cross_entropy(logits, batch.labels, task)}
        if self.teacher.taken:
            with torch.no_grad():  # the same view as the student sees
                taught = self.logits(batch.inputs, self.teacher.tensors())
            known = logits[:, : taught.shape[1]]
            kept = distillation(known, taught, self.config.temperature)
            losses["distillation"] = self.config.distillation * kept
        return losses
