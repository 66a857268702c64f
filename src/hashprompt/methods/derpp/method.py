"""DER++: stored images come with their old logits, and training preserves both.

Buzzega et al., NeurIPS 2020: "Dark experience for general continual learning".
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.methods.base import Batch, Phase, StepResult, TaskView
from hashprompt.methods.derpp.config import DERppConfig
from hashprompt.methods.frames.rehearsal import Rehearsal, offer


class DERpp(Rehearsal[DERppConfig]):
    """CE(x, y) + α·MSE(z(x'), z') + β·CE(x'', y''), with x' and x'' drawn from a reservoir."""

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        # In every epoch: in the first one the head is not trained yet.
        return [replace(train, record=lambda seen: offer(self.memory, seen, task))]

    def losses(self, batch: Batch, task: TaskView) -> StepResult:
        logits = self.logits(batch.inputs)
        losses = {"ce": self.cross_entropy(logits, batch.labels, task)}
        if len(self.memory):
            count = self.config.replays(len(batch.labels))
            kept, other = self.memory.draw(count), self.memory.draw(count)
            change = logit_change(self.logits(task.see(kept.images)), kept.outputs, kept.widths)
            replay = F.cross_entropy(self.logits(task.see(other.images)), other.labels)
            losses["logits"] = self.config.logit_weight * change
            losses["replay"] = self.config.replay_weight * replay
        return StepResult(losses, outputs=logits)


def logit_change(logits: Tensor, stored: Tensor, widths: Tensor) -> Tensor:
    """Mean squared difference, over images and all outputs that there were when they were stored.

    Args:
        logits: (n, C) now.
        stored: (n, K) then, K <= C.
        widths: (n,) how many outputs the head had then.
    """
    known = torch.arange(stored.shape[1], device=stored.device) < widths[:, None]
    return F.mse_loss(logits[:, : stored.shape[1]][known], stored[known])
