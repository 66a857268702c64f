"""EASE: every task has separate adapters, and so a subspace; all subspaces predict together.

Zhou et al., CVPR 2024. A class is known by a prototype in each subspace. Its images are gone when
later subspaces come, so its prototypes there are synthesised from those of classes it resembles.

A class that returns in another domain gets prototypes of that domain as well: classes below are
cells, (task, class) pairs, and the best cell of a class counts.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.ease.config import EaseConfig
from hashprompt.parts.adapters import TaskBranches, beside_mlps, branches
from hashprompt.parts.cells import Cells
from hashprompt.parts.heads import CosineHead, cosine

SCALE = 0.1  # of what the adapters add
DROPOUT = 0.1  # of their hidden units, while they are trained


class Ease(base.Method[EaseConfig]):
    """Expandable subspaces: one of every task, before them that of frozen features if β > 0."""

    keeps = ("adapters.down.frozen", "adapters.up.frozen", "cells")
    stores = "prompts: adapters; head: prototypes"

    def __init__(self, config: EaseConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.layers = beside_mlps(backbone)
        self.adapters = TaskBranches(backbone.depth, backbone.dim, config.adapter_width)
        self.session_head = CosineHead(backbone.dim)  # of the current task; trains its adapters
        self.cells = Cells()
        # P, (M, J, D): cells and subspaces
        self.prototypes: Tensor = nn.Buffer(torch.zeros(0, 0, backbone.dim))

    def begin_task(self, task: TaskView) -> None:
        self.adapters.add()
        self.cells.add(task.index, task.classes)
        self.session_head = CosineHead(self.backbone.dim).to(self.device)
        self.session_head.grow(len(task.classes))

    def phases(self, task: TaskView) -> list[Phase]:
        trained = (*self.adapters.current(), *self.session_head.parameters())
        group = ParamGroup(trained, self.config.lr, self.config.weight_decay)
        step = partial(self._step, task=task)
        train = base.training_phase(self.config, step, group, optimizer="sgd")
        return [train, Phase("prototypes", work=lambda: self._learn_prototypes(task))]

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        tokens = self.backbone.embed(batch.inputs)
        logits = self.session_head(self.feature(tokens, task.index, DROPOUT))
        first_cell = len(self.cells.label) - len(task.classes)
        return {"ce": F.cross_entropy(logits, self.cells.of(batch.labels, task.index) - first_cell)}

    # Subspaces and prototypes. -------------------------------------------------------------

    def subspaces(self) -> list[int | None]:
        """The tasks whose adapters make the J subspaces; None: frozen features."""
        return [*([None] if self.config.beta else []), *range(self.adapters.tasks)]

    def home(self) -> Tensor:
        """The subspace in which each cell was learned, (M,)."""
        return self.cells.task + int(self.config.beta > 0)

    def feature(self, tokens: Tensor, task: int | None, dropout: float = 0.0) -> Tensor:
        """f_j of embedded images, (B, N, D) -> (B, D)."""
        if task is None:
            return self.backbone.encode(tokens)
        newest = task == self.adapters.tasks - 1
        down, up = self.adapters.current() if newest else self.adapters.of(task)
        edits = branches(self.layers, down, up, SCALE, dropout=dropout)
        return self.backbone.encode(tokens, Injection(edits=edits))

    def _learn_prototypes(self, task: TaskView) -> None:
        """P_{t,j} of the new cells for all j ≤ t; those of old cells in new subspaces."""
        true = torch.stack([self._means(task, of) for of in self.subspaces()], dim=1)
        unknown = true.shape[1] - self.prototypes.shape[1]
        prototypes = torch.cat((F.pad(self.prototypes, (0, 0, 0, unknown)), true))
        self.prototypes = synthesised(prototypes, self.home())

    def _means(self, task: TaskView, subspace: int | None) -> Tensor:
        """The mean feature of each class of the task in a subspace, (C_t, D)."""
        if subspace is None:
            features = task.features()
        else:
            features = task.map(lambda x: self.feature(self.backbone.embed(x), subspace))
        features, labels = features.to(self.prototypes), task.labels.to(self.prototypes.device)
        return torch.stack([features[labels == label].mean(0) for label in task.classes])

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        tokens = self.backbone.embed(images)
        features = [
            plain if of is None and plain is not None else self.feature(tokens, of)
            for of in self.subspaces()
        ]
        scores = weighted_cosines(torch.stack(features, dim=1), self.prototypes, self._weights())
        return Prediction(self.cells.to_classes(scores))

    def _weights(self) -> Tensor:
        """Weight of each subspace for each cell, (M, J): its own 1, the others α in all."""
        others = self.config.alpha / max(self.adapters.tasks - 1, 1)
        weights = torch.full_like(self.prototypes[..., 0], others)
        if self.config.beta:
            weights[:, 0] = self.config.beta
        return weights.scatter(1, self.home()[:, None], 1.0)


def synthesised(prototypes: Tensor, home: Tensor) -> Tensor:
    """P̂_{i,n} = softmax(cos(P_{i,i}, P_{n…t,i})) P_{n…t,n} for old tasks i in newer subspaces n.

    Cells of tasks n…t have true prototypes in both subspaces.

    Args:
        prototypes: P, (M, J, D); true in the subspaces up to a cell's own.
        home: (M,) that subspace.

    Returns:
        (M, J, D), P with all others filled in.
    """
    filled = prototypes.clone()
    newest = prototypes.shape[1] - 1
    for own in range(int(home.min()), newest):
        old = home == own
        for new in range(own + 1, newest + 1):
            both = home >= new
            similarity = cosine(prototypes[old, own], prototypes[both, own]).softmax(1)
            filled[old, new] = similarity @ prototypes[both, new]
    return filled


def weighted_cosines(features: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    """Σ_j w_{m,j} cos(f_j, P_{m,j}), (B, M), of features (B, J, D), P (M, J, D) and w (M, J)."""
    with torch.autocast(features.device.type, enabled=False):  # rounded cosines would tie
        directions = weights[..., None] * F.normalize(prototypes, dim=2)
        return F.normalize(features.float(), dim=2).flatten(1) @ directions.flatten(1).T
