"""SLDC, sequential learning with drift compensation: Gaussians of old classes follow the features.

AAAI 2026, arXiv 2511.09926. One LoRA learns all tasks. How it moved the features of the new images
tells where those of old classes are now, and the head is refined with samples from there. The
variant with unlabelled images from elsewhere (ADE) is left out: nothing but the stream is seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, ParamGroup, Phase, TaskView, learning_rate_factor
from hashprompt.methods.frames.classifier_alignment import AlignedTuning
from hashprompt.methods.kinds import Schedule
from hashprompt.methods.sldc.config import SLDCConfig
from hashprompt.methods.sldc.drift_operators import (
    LinearDrift,
    WeaklyNonlinearDrift,
    move_by_samples,
)
from hashprompt.parts.alignment import symmetric_cross_entropy
from hashprompt.parts.lora import TrainedLoRA
from hashprompt.parts.trained_weights import Snapshot

LAYERS = ("attn.qkv", "mlp.fc1", "mlp.fc2")
OPERATOR_BATCH = 32  # pairs of a step


class SLDC(AlignedTuning):
    """One LoRA, and statistics that move with its features."""

    stores = "prompts: lora teacher; statistics: operator"
    align_first = True
    config: SLDCConfig

    def __init__(self, config: SLDCConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.jitter = config.jitter
        self.lora = TrainedLoRA(backbone, LAYERS, config.rank, config.lora_scale)
        self.teacher = Snapshot(self.trained())  # the network before the task
        if config.operator == "weakly-nonlinear":
            self.operator = WeaklyNonlinearDrift(backbone.dim)
        # Features before and after the task, (N, 2, D), while an operator is fitted.
        self.pairs: Tensor = nn.Buffer(torch.zeros(0, 2, backbone.dim))

    # The network. --------------------------------------------------------------------------

    def trained(self) -> dict[str, Tensor]:
        """All that the features depend on, by name."""
        return {**self.lora.tensors(), **self.weights()}

    def features(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Features (B, D) under what is trained, or under the values of another time."""
        values = self.trained() if weights is None else weights
        own = {name: values[name] for name in self.weights()}
        return self.backbone(images, Injection(weights=own, edits=self.lora.edits(values)))

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        if task.index > 0 and (self.config.distill or self.config.operator != "none"):
            self.teacher.take(self.trained())

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        features = self.features(batch.inputs)
        logits = self.head(features)
        losses = {"sce": self.symmetric_loss(logits, batch.labels, self.allowed(task.classes))}
        if task.index > 0 and self.config.distill:
            losses["distill"] = self.distillation(batch.inputs, features)
        return losses

    def symmetric_loss(self, logits: Tensor, labels: Tensor, allowed: Tensor) -> Tensor:
        """Cross-entropy and its reverse, of logits (B, C) over the allowed (C,) outputs."""
        return symmetric_cross_entropy(
            logits,
            labels,
            allowed,
            forward=self.config.forward_loss,
            reverse=self.config.reverse_loss,
        )

    def distillation(self, images: Tensor, features: Tensor) -> Tensor:
        """How far features (B, D) and their norms are from the teacher's.

        In units of the teacher's mean square, which is 1 in the paper: its final norm has no
        trained scale.
        """
        with torch.no_grad():
            before = self.features(images, self.teacher.tensors())
        change = (features - before).square().mean()
        of_norms = F.mse_loss(features.norm(dim=1), before.norm(dim=1))
        total = self.config.distill * change + self.config.distill_norm * of_norms
        return total / before.square().mean()

    # Drift. --------------------------------------------------------------------------------

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config
        train, *rest = super().phases(task)
        phases = [
            replace(
                train,
                schedule=falling_to(config.last_rate, config.schedule),
                groups=[
                    ParamGroup(tuple(self.lora.parameters()), config.rate(), config.weight_decay),
                    *train.groups,
                ],
            )
        ]
        if task.index > 0 and config.operator != "none":
            phases.append(Phase("pairs", work=lambda: self.look_back(task)))
        if task.index > 0 and config.operator == "weakly-nonlinear":
            phases.append(
                Phase(
                    "operator",
                    step=self.operator_losses,
                    groups=[ParamGroup(tuple(self.operator.parameters()), config.operator_lr)],
                    epochs=config.operator_epochs,
                    draw=self.draw_pairs,
                    schedule=falling_to(0.5),
                    schedule_per="step",
                )
            )
        return [*phases, *rest]

    def look_back(self, task: TaskView) -> None:
        """Features of each new image before and after the task, in one pass of clean views."""
        old = self.teacher.tensors()
        self.pairs = task.map(lambda x: torch.stack((self.features(x, old), self.features(x)), 1))
        if self.config.operator == "weakly-nonlinear":
            self.operator.restart()

    def draw_pairs(self) -> list[Batch]:
        """The batches of an epoch: directions (B, 2, D) before and after."""
        directions = F.normalize(self.pairs, dim=2)
        size = (self.config.operator_steps, OPERATOR_BATCH)
        rows = torch.randint(len(directions), size, device=directions.device)
        return [Batch(directions[r], torch.zeros_like(r)) for r in rows]

    def operator_losses(self, batch: Batch) -> dict[str, Tensor]:
        before, after = batch.inputs.unbind(1)
        penalty = self.config.gate_penalty * self.operator.penalty()
        return {"fit": F.mse_loss(self.operator(before), after), "gate": penalty}

    @torch.no_grad()
    def describe(self, task: TaskView) -> None:
        """Move old Gaussians, then add those of the new classes."""
        if len(self.pairs) and self.config.operator == "linear":
            before, after = self.pairs.unbind(1)
            drift = LinearDrift(
                before,
                after,
                ridge=self.config.operator_ridge,
                temperature=self.config.operator_temperature,
            )
            self.gaussians.move(range(len(self.gaussians)), drift)
        elif len(self.pairs):
            move_by_samples(self.gaussians, self.operator)
        self.pairs = self.pairs[:0]
        super().describe(task)

    # The refined head. ---------------------------------------------------------------------

    def alignment(self) -> Phase:
        return replace(super().alignment(), optimizer="adam", schedule=falling_to(0.1))

    def align_batch(self) -> int:
        return max(1, 32 * len(self.gaussians) // 10)

    def align_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of training, over all classes."""
        return self.symmetric_loss(logits, labels, torch.ones_like(logits[0], dtype=torch.bool))


def falling_to(last: float, schedule: Schedule = "cosine") -> Callable[[float, float], float]:
    """A schedule that ends at a share of the first rate, not at zero."""
    return lambda epoch, epochs: last + (1 - last) * learning_rate_factor(schedule, epoch, epochs)
