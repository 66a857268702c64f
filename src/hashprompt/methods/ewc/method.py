"""Online EWC, elastic weight consolidation: a penalty keeps weights that mattered to old tasks.

Kirkpatrick et al., PNAS 2017; one running F and one anchor as in Schwarz et al., ICML 2018.
"""

import torch
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Phase, TaskView
from hashprompt.methods.ewc.config import EWCConfig
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.parts.trained_weights import Snapshot


class EWC(FullFinetuning[EWCConfig]):
    """Cross-entropy over the classes of the task + (λ/2) Σ F (θ − θ*)²."""

    stores = "statistics: fisher; backbone: anchor"

    def __init__(self, config: EWCConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.fisher = Snapshot(self.network())  # F
        self.anchor = Snapshot(self.network())  # θ*, after the last task

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        losses = {"ce": self.cross_entropy(self.logits(batch.inputs), batch.labels, task)}
        if self.anchor.taken:
            losses["penalty"] = self.config.penalty / 2 * self.distance()
        return losses

    def distance(self) -> Tensor:
        """Σ F (θ − θ*)²; rows of the head that came since have no anchor."""
        fisher, anchor = self.fisher.tensors(), self.anchor.tensors()
        each = [
            (fisher[name] * (value[: len(anchor[name])] - anchor[name]).square()).sum()
            for name, value in self.network().items()
        ]
        return torch.stack(each).sum()

    def phases(self, task: TaskView) -> list[Phase]:
        return [*super().phases(task), Phase("fisher", work=lambda: self.consolidate(task))]

    def consolidate(self, task: TaskView) -> None:
        """F ← γ F + F_t, θ* ← θ; F_t is the mean of (∇ log p(y|x))² over single images."""
        network, fisher = self.network(), {}
        for name, old in self.fisher.tensors().items():
            fisher[name] = torch.zeros_like(network[name])
            fisher[name][: len(old)] = self.config.decay * old
        chosen = torch.randperm(len(task.labels))[: self.config.fisher_images].tolist()
        for row, image in enumerate(task.batches(1, "clean")):
            if row in chosen:
                loss = self.cross_entropy(self.logits(image.inputs), image.labels, task)
                parameters = list(network.values())
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
                for held, gradient in zip(fisher.values(), gradients, strict=True):
                    held.add_(gradient.square(), alpha=1 / len(chosen))
        self.fisher.take(fisher)
        self.anchor.take(network)
