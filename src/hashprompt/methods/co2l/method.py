"""Co²L: contrastive learning with distilled relations between images, then a linear classifier.

Cha et al., ICCV 2021: "Contrastive continual learning".
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, ParamGroup, Phase, TaskView
from hashprompt.methods.co2l.config import Co2LConfig
from hashprompt.methods.frames.rehearsal import Rehearsal
from hashprompt.parts.trained_weights import Snapshot


class Co2L(Rehearsal[Co2LConfig]):
    """Features are learned without the classifier, which is retrained after each task."""

    stores = "backbone: teacher projector"

    def __init__(self, config: Co2LConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        first = nn.Linear(backbone.dim, backbone.dim)
        self.projector = nn.Sequential(first, nn.ReLU(), nn.Linear(backbone.dim, config.projection))
        self.teacher = Snapshot(self._learner())

    def _learner(self) -> dict[str, Tensor]:
        projector = {f"projector.{k}": v for k, v in self.projector.named_parameters()}
        return {**self.vit.tensors(), **projector}

    def begin_task(self, task: TaskView) -> None:
        if len(self.head.bias):
            self.teacher.take(self._learner())
        self.head = self.head.restarted(max(task.classes) + 1)

    def phases(self, task: TaskView) -> list[Phase]:
        (train,) = super().phases(task)
        vit, head = train.groups
        projector = replace(head, params=tuple(self.projector.parameters()))
        train = replace(train, groups=(vit, projector), views=2)
        classify = replace(
            train,
            name="classify",
            groups=(ParamGroup(tuple(self.head.parameters()), self.config.classifier_lr),),
            epochs=self.config.classifier_epochs,
            draw=lambda: self.balanced(task),
            step=lambda b: {"ce": F.cross_entropy(self.head(b.inputs), b.labels)},
        )
        return [train, classify, Phase("memory", work=lambda: self.remember(task))]

    # Features. -----------------------------------------------------------------------------

    def projected(self, images: Tensor, values: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B, projection) of length one, by the network or by a teacher's values."""
        if values is None:
            return F.normalize(self.projector(self.features(images)), dim=1)
        features = self.features(images, {name: values[name] for name in self.vit.tensors()})
        own = {k: values[f"projector.{k}"] for k, _ in self.projector.named_parameters()}
        return F.normalize(functional_call(self.projector, own, features), dim=1)

    def losses(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        """Of two views (2B, 3, S, S) of new images, and two of stored ones."""
        images, labels = batch.inputs, batch.labels.repeat(2)
        tasks = torch.full_like(labels, task.index)
        kept = self.memory.draw(self.config.replays(len(batch.labels)))
        if len(kept.labels):
            images = torch.cat((images, task.see(kept.images), task.see(kept.images)))
            labels = torch.cat((labels, kept.labels.repeat(2)))
            tasks = torch.cat((tasks, kept.tasks.repeat(2)))
        projected, new = self.projected(images), torch.arange(len(labels)) < len(batch.inputs)
        cells = labels + len(self.head.bias) * tasks  # a class in another domain is another group
        anchors, config = new.to(cells.device), self.config
        contrast = asymmetric_contrast(projected, cells, anchors, config.temperature)
        if not self.teacher.taken:
            return {"contrast": contrast}
        with torch.no_grad():
            before = self.projected(images, self.teacher.tensors())
        temperatures = config.relation_temperature, config.teacher_temperature
        change = relation_change(projected, before, *temperatures)
        return {"contrast": contrast, "relations": config.distill_weight * change}

    # Classifier. ---------------------------------------------------------------------------

    @torch.no_grad()
    def balanced(self, task: TaskView) -> list[Batch]:
        """Features of new and stored images, with equal probability of all classes."""
        new = task.map(self.features, "train")
        parts = self.memory.images.split(self.config.batch_size)
        stored = [self.features(task.see(images)) for images in parts if len(images)]
        labels = torch.cat((task.labels, self.memory.labels))
        weights = 1 / labels.bincount()[labels].float()
        rows = torch.multinomial(weights.cpu(), len(labels), replacement=True).to(labels.device)
        every = torch.cat((new, *stored))
        return [Batch(every[r], labels[r]) for r in rows.split(self.config.batch_size)]

    def remember(self, task: TaskView) -> None:
        """Keep random images."""
        order = torch.randperm(len(task.labels)).to(task.labels.device)
        self.memory.keep(task.labels, task.raw, task.index, order)


def asymmetric_contrast(
    projected: Tensor, groups: Tensor, anchors: Tensor, temperature: float
) -> Tensor:
    """Supervised contrastive loss whose anchors are new images only (Co²L, eq. 2).

    For each anchor: −mean over the others of its group of log e^{z·z'/τ} / Σ e^{z·z''/τ}, where the
    sum runs over all but the anchor. An anchor without others in its group does not count.

    Args:
        projected: (N, d) of length one.
        groups: (N,).
        anchors: (N,) bool.
    """
    log_share = _relations(projected, temperature)
    alike = (groups[:, None] == groups) & ~_itself(projected)
    counted = anchors & alike.any(1)
    mean = log_share.masked_fill(~alike, 0).sum(1) / alike.sum(1).clamp(min=1)
    return -mean.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)


def relation_change(
    projected: Tensor, before: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """Cross-entropy between the relations of the teacher and of the network (Co²L, eq. 6).

    Args:
        projected: (N, d) of length one, by the network.
        before: (N, d) by the teacher.
        temperature: κ of the network.
        teacher_temperature: τ* of the teacher.
    """
    target = _relations(before, teacher_temperature).exp()
    log_share = _relations(projected, temperature).masked_fill(_itself(projected), 0)
    return -(target * log_share).sum(1).mean()


def _relations(projected: Tensor, temperature: float) -> Tensor:
    """Log of each image's similarity to the others as shares, (N, N); −∞ to itself."""
    similarity = projected @ projected.T / temperature
    return similarity.masked_fill(_itself(projected), -torch.inf).log_softmax(1)


def _itself(projected: Tensor) -> Tensor:
    return torch.eye(len(projected), dtype=torch.bool, device=projected.device)
