"""SLDC, sequential learning with drift compensation: class Gaussians compensated for drift.

AAAI 2026, arXiv 2511.09926. One LoRA learns all tasks. How it moved the features of the new images
estimates where those of old classes are now, and the head is refined with samples from there. The
variant with unlabelled images from elsewhere (ADE) is left out: nothing but the stream is seen.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, ParamGroup, Phase, TaskView, learning_rate_factor
from hashprompt.methods.frames.classifier_alignment import AlignedTuning, symmetric_cross_entropy
from hashprompt.methods.kinds import Schedule
from hashprompt.methods.sldc.config import SLDCConfig
from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler
from hashprompt.parts.lora import TrainedLoRA
from hashprompt.parts.precision import exact
from hashprompt.parts.trained_weights import Snapshot

SAMPLES = 10  # pseudo-features per dimension, for the moments of a moved class
LAYERS = ("attn.qkv", "mlp.fc1", "mlp.fc2")
OPERATOR_BATCH = 32  # pairs of a step


class SLDC(AlignedTuning[SLDCConfig]):
    """One LoRA, and statistics that move with its features."""

    stores = "prompts: lora teacher; statistics: operator"

    def __init__(self, config: SLDCConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.lora = TrainedLoRA(backbone, LAYERS, config.rank, config.lora_scale)
        self.teacher = Snapshot(self.trained())  # the network before the task
        if config.operator == "weakly-nonlinear":
            self.operator = WeaklyNonlinearDrift(backbone.dim)
        # Features before and after the task, (N, 2, D), while an operator is fitted.
        self.pairs: Tensor = nn.Buffer(torch.zeros(0, 2, backbone.dim))

    # The network. --------------------------------------------------------------------------

    def trained(self) -> dict[str, Tensor]:
        """All that the features depend on, by name."""
        return {**self.lora.tensors(), **self.vit.tensors()}

    def features(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Features (B, D) under what is trained, or under the values of another time."""
        values = self.trained() if weights is None else weights
        own = {name: values[name] for name in self.vit.tensors()}
        return self.backbone(images, Injection(weights=own, edits=self.lora.edits(values)))

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        if task.index > 0 and (self.config.distill or self.config.operator != "none"):
            self.teacher.take(self.trained())

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        features = self.features(batch.inputs)
        logits = self.head(features)
        losses = {"sce": self.symmetric_loss(logits, batch.labels, self.head.mask(task.classes))}
        if task.index > 0 and self.config.distill:
            losses["distill"] = self.distillation(batch.inputs, features)
        return losses

    def symmetric_loss(self, logits: Tensor, labels: Tensor, allowed: Tensor) -> Tensor:
        """Cross-entropy and its reverse, of logits (B, C) over the allowed (C,) outputs."""
        weights = self.config.forward_loss, self.config.reverse_loss
        return symmetric_cross_entropy(logits, labels, allowed, *weights)

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
        if task.index == 0:
            rest.append(self.alignment())
        factors = ParamGroup(self.lora.parameters(), config.rate(), config.weight_decay)
        schedule = falling_to(config.last_rate, config.schedule)
        phases = [replace(train, schedule=schedule, groups=(factors, *train.groups))]
        if task.index > 0 and config.operator != "none":
            phases.append(Phase("pairs", work=lambda: self.look_back(task)))
        if task.index > 0 and config.operator == "weakly-nonlinear":
            fit = Phase(
                "operator",
                step=self.operator_losses,
                groups=[ParamGroup(self.operator.parameters(), config.operator_lr)],
                epochs=config.operator_epochs,
                draw=self.draw_pairs,
                schedule=falling_to(0.5),
                schedule_per="step",
            )
            phases.append(fit)
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
            config = self.config
            drift = LinearDrift(before, after, config.operator_ridge, config.operator_temperature)
            self.gaussians.move(drift)
        elif len(self.pairs):
            move_by_samples(self.gaussians, self.operator)
        self.pairs = self.pairs[:0]
        super().describe(task)

    # The refined head. ---------------------------------------------------------------------

    def alignment(self, **changes: Any) -> Phase:
        size = max(1, 32 * len(self.cells.label) // 10)
        own = {"optimizer": "adam", "schedule": falling_to(0.1)}
        return super().alignment(batch_size=size, jitter=self.config.jitter, **own)

    def align_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of training, over all classes."""
        return self.symmetric_loss(logits, labels, torch.ones_like(logits[0], dtype=torch.bool))


def falling_to(last: float, schedule: Schedule = "cosine") -> Callable[[float, float], float]:
    """A schedule that ends at a share of the first rate, not at zero."""
    return lambda epoch, epochs: last + (1 - last) * learning_rate_factor(schedule, epoch, epochs)


# Drift operators. Both are fitted on the directions of features, of new images before and after the
# task: x and y are features of the same image, divided by their norms.


class LinearDrift(Drift):
    """α₁: x W with W = (XᵀX + γ₁ I)⁻¹ XᵀY, drawn towards the identity when images are few.

    W ← (1 − w) W + w I, w = exp(−n / (temperature · D)). A direction in which no image points
    keeps only the share w of its length.

    Args:
        before: (N, D) features before the task.
        after: (N, D) of the same images after it.
        ridge: γ₁.
        temperature: the larger, the nearer to the identity; 0: never.
    """

    def __init__(self, before: Tensor, after: Tensor, ridge: float, temperature: float) -> None:
        x, y = (F.normalize(exact(features), dim=1) for features in (before, after))
        images, dim = x.shape
        eye = torch.eye(dim, dtype=x.dtype, device=x.device)
        fitted = torch.linalg.solve(x.T @ x + ridge * eye, x.T @ y)
        identity = math.exp(-images / (temperature * dim)) if temperature else 0.0  # w
        self.middle = self.shift = torch.zeros_like(eye[0])  # no offset
        self.slope = (1 - identity) * fitted + identity * eye - eye


class WeaklyNonlinearDrift(nn.Module):
    """α₂: T(f) = c₀ f + c₁ f A + c₂ ψ(f), ψ a small MLP, c the softmax of free gates.

    Args:
        dim: D.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.empty(dim, dim))  # A
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))  # ψ
        self.gates = nn.Parameter(torch.empty(3))
        self.restart()

    @torch.no_grad()
    def restart(self) -> None:
        """Nearly the identity, with a fresh MLP."""
        nn.init.eye_(self.linear)
        self.gates.copy_(torch.tensor([1.0, 0.0, 0.0]))
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, directions: Tensor) -> Tensor:
        """Unit vectors (B, D) before the task -> about unit vectors after it."""
        c = self.gates.softmax(0)
        return c[0] * directions + c[1] * directions @ self.linear + c[2] * self.mlp(directions)

    def penalty(self) -> Tensor:
        """(1 − the share of what is linear)²."""
        return self.gates.softmax(0)[2].square()

    def points(self, features: Tensor) -> Tensor:
        """Where features (B, D) have moved to: T(f / ‖f‖) ‖f‖."""
        norm = features.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return self(features / norm) * norm


@torch.no_grad()
def move_by_samples(gaussians: ClassGaussians, operator: WeaklyNonlinearDrift) -> None:
    """Move all Gaussians by an operator that is not linear: moments of moved samples.

    The samples have exactly the mean and covariance of their Gaussian, so that what does not move
    stays as it is, however often.
    """
    noise = white_noise(SAMPLES * gaussians.dim, gaussians.means)
    factors = GaussianSampler(gaussians).factor
    for cell, factor in enumerate(factors):
        moved = operator.points(gaussians.means[cell] + noise @ factor.mT)
        gaussians.means[cell] = moved.mean(0)
        gaussians.spread[cell] = moved.T.cov()


def white_noise(rows: int, like: Tensor) -> Tensor:
    """Normal noise (rows, D) whose own mean is zero and whose own covariance is the identity.

    Args:
        like: (M, D) with this D, type and device.
    """
    drawn = exact(torch.randn(rows, like.shape[1], device=like.device))
    centred = drawn - drawn.mean(0)
    lower = torch.linalg.cholesky(centred.T.cov())
    return torch.linalg.solve_triangular(lower.mT, centred, upper=True, left=False).to(like)
