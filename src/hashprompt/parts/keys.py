"""Learned keys: an image is given the prompts whose keys are nearest to its plain feature."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.legacy import shared_task
from hashprompt.parts.slots import TaskSlots


def cosine(query: Tensor, keys: Tensor) -> Tensor:
    """Cosine of every query (B, D) with every key (N, D), (B, N)."""
    # In full precision always: rounded cosines would tie, and ties make the choice arbitrary.
    with torch.autocast(query.device.type, enabled=False):
        return F.normalize(query.float(), dim=-1) @ F.normalize(keys.float(), dim=-1).T


class TaskKeys(TaskSlots):
    """One key (D,) per task."""

    def pull(self, query: Tensor) -> Tensor:
        """Mean cosine of the newest key with plain features (B, D) of its task: a scalar."""
        return cosine(query, self.current[None]).mean()

    def nearest(self, query: Tensor, batchwise: bool) -> Tensor:
        """The task (B,) whose key is nearest to each plain feature (B, D), or to most of them."""
        task = cosine(query, self.stacked()).argmax(1)
        return shared_task(task) if batchwise else task
