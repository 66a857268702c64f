"""MACIL: the drift of old classes, compensated in the mean and limited in the covariance.

Wu et al., ICML 2025: "Navigating semantic drift in task-agnostic class-incremental learning". Every
task adds a low-rank change to keys and values. Means of old classes follow the features of new
images; two losses hold distances within classes and patch tokens where the network before the task
had them; at last all heads are aligned on Gaussians.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, Losses, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.frames.classifier_alignment import (
    alignment_phase,
    normalised_cross_entropy,
    with_smaller_means,
)
from hashprompt.methods.macil.config import MACILConfig
from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.growing import grow_parameter
from hashprompt.parts.heads import cosine, masked_cross_entropy
from hashprompt.parts.lora import joined_factors, merged
from hashprompt.parts.precision import exact
from hashprompt.parts.slots import TaskSlots, uniform

FLOOR = 1e-5  # weight of a new image that is far from an old mean
ALIGN_DECAY = 0.1  # of the means of the oldest classes, in alignment
ALIGN_WEIGHT_DECAY = 5e-4  # of the heads, in alignment


class MACIL(base.Method[MACILConfig]):
    """A change of keys and values per task, cosine heads, Gaussians with compensated means."""

    keeps = ("down.frozen", "up.frozen", "stats.spread", "cells.")
    stores = "prompts: down up; statistics: stats whitening"

    def __init__(self, config: MACILConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, dim, rank = backbone.depth, backbone.dim, config.rank
        self.down = TaskSlots((blocks, 2, rank, dim), uniform(dim**-0.5))  # A, of keys and values
        self.up = TaskSlots((blocks, 2, dim, rank), torch.zero_)  # B
        self.head = nn.Parameter(torch.zeros(0, dim))  # (C, D), of which directions matter
        self.cells = Cells()
        self.stats = ClassGaussians(dim, "covariance")
        # (C_t, D, D), only while a task is trained
        self.whitening: Tensor = nn.Buffer(torch.zeros(0, dim, dim))

    def begin_task(self, task: TaskView) -> None:
        for slots in (self.down, self.up):
            slots.add(copy_last=False)
        self.cells.add(task.index, task.classes)
        rows = torch.empty(self.cells.classes - len(self.head), self.backbone.dim)
        grow_parameter(self, "head", nn.init.trunc_normal_(rows, std=0.02))

    # The network. --------------------------------------------------------------------------

    def inject(self, tasks: int | None = None) -> Injection:
        """The changes of the first tasks, or of all."""
        a = self.down.stacked()[:tasks].movedim(0, 2).flatten(2, 3)  # (blocks, 2, T r, D)
        b = self.up.stacked()[:tasks].movedim(0, 3).flatten(3, 4)  # (blocks, 2, D, T r)
        factors = {f"blocks.{i}.attn.qkv": joined_factors(a[i], b[i]) for i in range(len(a))}
        return Injection(weights=merged(self.backbone, factors))

    def features(self, images: Tensor, tasks: int | None = None) -> Tensor:
        """(B, 3, S, S) -> (B, D), with the changes of the first tasks or of all."""
        return self.backbone(images, self.inject(tasks))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.config.scale * cosine(self.features(images), self.head))

    # Training. -----------------------------------------------------------------------------

    def phases(self, task: TaskView) -> list[Phase]:
        config, first = self.config, task.index == 0
        train = base.training_phase(
            config,
            lambda batch: self._step(batch, task),
            ParamGroup([self.down.current, self.up.current, self.head], config.lr),
            epochs=config.first_epochs if first else config.epochs,
            optimizer="sgd",
        )
        describe = Phase("statistics", work=lambda: self._describe(task))
        if first:
            return [train, describe]
        covariances = Phase("covariances", work=lambda: self._whiten(task))
        return [covariances, train, describe, self._alignment()]

    def _step(self, batch: Batch, task: TaskView) -> Losses:
        embedded = self.backbone.embed(batch.inputs)
        tokens = self.backbone.encode(embedded, self.inject(), read="all")
        allowed = self.cells.task == task.index
        logits = self.config.scale * cosine(tokens[:, 0], self.head)
        losses = {"ce": masked_cross_entropy(logits, batch.labels, allowed)}
        if task.index > 0:
            with torch.no_grad():
                before = self.backbone.encode(embedded, self.inject(task.index), read="all")
            own = batch.labels - min(task.classes)
            held = covariance_loss(before[:, 0], tokens[:, 0], own, self.whitening)
            losses["covariance"] = self.config.covariance_weight * held
            patches = slice(self.backbone.vit.num_prefix_tokens, None)
            kept = patch_distillation(before[:, patches], tokens[:, patches], tokens[:, 0])
            losses["distillation"] = self.config.distillation_weight * kept
        return losses

    def _whiten(self, task: TaskView) -> None:
        """Whitening of the task's classes under the network before the task."""
        features = exact(task.map(lambda images: self.features(images, task.index)))
        labels = task.labels.to(features.device)
        each = [whitening(features[labels == label]) for label in task.classes]
        self.whitening = torch.stack(each).to(self.whitening)

    def _describe(self, task: TaskView) -> None:
        """Compensate old means for drift, and add the Gaussians of the task's classes."""
        after = task.map(self.features)
        if task.index > 0:
            # One clean pass in the same order, so that both features of a row are of one image.
            before = task.map(lambda images: self.features(images, task.index))
            shift = mean_shift(before, after, self.stats.means, self.config.shift_width)
            self.stats.means = self.stats.means + shift
        self.stats.add(after, task.labels, task.classes)
        self.whitening = self.whitening[:0]

    def _alignment(self) -> Phase:
        config, task = self.config, self.cells.task

        def shaped(features: Tensor, cells: Tensor) -> Tensor:
            return with_smaller_means(features, cells, self.stats.means, task, ALIGN_DECAY)

        def loss(features: Tensor, labels: Tensor) -> Tensor:
            logits = cosine(features, self.head)
            return normalised_cross_entropy(logits, labels, task)

        return alignment_phase(
            "align",
            self.stats,
            self.cells.label,
            ParamGroup([self.head], config.align_lr, ALIGN_WEIGHT_DECAY),
            loss,
            shaped=shaped,
            samples=config.align_samples,
            epochs=config.align_epochs,
        )


def mean_shift(before: Tensor, after: Tensor, means: Tensor, width: float) -> Tensor:
    """Drift of class means, estimated on new images: images near a mean count more.

    Args:
        before: (N, D) features of new images before the task.
        after: (N, D) of the same images now.
        means: (C, D) as they were.
        width: σ of exp(−‖f − μ‖² / 2σ²).

    Returns:
        (C, D).
    """
    old, now = exact(before), exact(after)
    near = torch.cdist(exact(means), old).square()
    weights = (-near / (2 * width**2)).exp() + FLOOR
    return (weights / weights.sum(1, keepdim=True) @ (now - old)).to(means)


def whitening(features: Tensor) -> Tensor:
    """L with L Lᵀ = Σ⁻¹, the covariance of a class (n, D) being strongly shrunken; (D, D).

    Σ + 10 · mean of its diagonal there + 10 · mean of the rest elsewhere + 0.001 I: positive
    definite for any covariance.
    """
    centred = features - features.mean(0)
    covariance = centred.T @ centred / max(len(features) - 1, 1)
    dim = len(covariance)
    eye = torch.eye(dim).to(covariance)
    on = covariance.diagonal().mean()
    off = (covariance.sum() - covariance.diagonal().sum()) / max(dim * (dim - 1), 1)
    shrunken = covariance + 10 * on * eye + 10 * off * (1 - eye) + 1e-3 * eye
    return torch.linalg.cholesky(torch.linalg.inv(shrunken))


def covariance_loss(old: Tensor, new: Tensor, labels: Tensor, whitening: Tensor) -> Tensor:
    """Σ |d_old − d_new| over pairs of images of a class, over the number of images.

    d is the Mahalanobis distance of features of unit length.

    Args:
        old: (B, D) features by the network before the task.
        new: (B, D) features now.
        labels: (B,) within the task.
        whitening: (C_t, D, D) of each class.
    """
    total = new.new_zeros(())
    with torch.autocast(new.device.type, enabled=False):  # differences of distances are small
        for label in labels.unique().tolist():
            rows, whiten = labels == label, whitening[label]
            was, now = (_distances(x[rows].float(), whiten) for x in (old, new))
            total = total + (was - now).abs().sum()
    return total / len(new)


def _distances(features: Tensor, whitening: Tensor) -> Tensor:
    """Of all pairs of n features (n, D)."""
    white = F.normalize(features, dim=1) @ whitening
    one, other = torch.triu_indices(len(white), len(white), 1, device=white.device)
    return ((white[one] - white[other]).square().sum(1) + 1e-8).sqrt()


def patch_distillation(old: Tensor, new: Tensor, cls: Tensor) -> Tensor:
    """Distillation of patch tokens, stronger for tokens unlike the class token.

    Mean of angle(cls, p)/π · ‖p_new − p_old‖ over all tokens p, of unit length.

    Args:
        old: (B, N, D) patch tokens by the network before the task.
        new: (B, N, D) now.
        cls: (B, D) class token now.
    """
    directions = F.normalize(new, dim=-1)
    similarity = (directions @ F.normalize(cls, dim=-1)[..., None])[..., 0].detach().clamp(-1, 1)
    moved = torch.linalg.vector_norm(directions - F.normalize(old, dim=-1), dim=-1)
    return (similarity.acos() / torch.pi * moved).mean()
