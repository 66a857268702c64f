"""Averaged prompt: one prompt, averaged over tasks, and class Gaussians with drift compensation.

One prompt in all blocks is trained on every task, starting from the last task's prompt. The prompt
in use is the average over tasks, weighted by their numbers of classes: with more tasks it moves
less. The features of old classes move with it, so an affine map, fitted on features of the new
images before and after, moves their Gaussians. A discriminant of all Gaussians predicts.

Averaging weights over tasks, compensating the drift of class statistics and Gaussian discriminants
are known: see docs/results/averaged-prompt.md for sources.
"""

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.averaged_prompt.config import AveragedPromptConfig
from hashprompt.methods.base import Batch, Losses, ParamGroup, Phase, Prediction, TaskView
from hashprompt.parts.cells import Cells
from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians, Discriminant, StoredClasses
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy

HEAD_LR_SCALE = 0.1  # learning rate of the head over that of the prompt
CLIP = 1.0  # maximum gradient norm


class AveragedPrompt(base.Method[AveragedPromptConfig]):
    """One prompt averaged over tasks, drift compensation, a discriminant, one pass."""

    stores = "prompts: prompt average; statistics: gaussians"
    keeps = ("cells.",)

    def __init__(self, config: AveragedPromptConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = base.blocks_of(config.layers, backbone)
        shape = len(self.blocks), 2, config.prompt_length, backbone.dim
        self.prompt = nn.Parameter(torch.empty(shape).uniform_(-1, 1))  # p_t, in training
        # (1, …) p̄, in use; (0, …) until a prompt was trained
        self.average: Tensor = nn.Buffer(torch.zeros(0, *shape))
        # number of classes of the tasks that it averages
        self.averaged: Tensor = nn.Buffer(torch.zeros((), dtype=torch.int64))
        # (N, D) features of the new images before the prompt moves
        self.before: Tensor = nn.Buffer(torch.zeros(0, backbone.dim))
        self.head = GrowingLinear(backbone.dim)  # trains the prompt, not used to predict
        self.cells = Cells()
        self.gaussians = ClassGaussians(backbone.dim, config.statistics, config.rank)

    @property
    def asks_plain(self) -> bool:
        return not len(self.average)

    # Features. -----------------------------------------------------------------------------

    def prompted(self, images: Tensor, prompt: Tensor) -> Tensor:
        """Features (B, D) of images (B, 3, S, S) under a prompt (blocks, 2, L, D)."""
        # A product instead of `expand`: its gradient is one matrix product, too.
        each = torch.ones(images.shape[0], 1, device=prompt.device) @ prompt.flatten()[None]
        prefixes = each.unflatten(1, prompt.shape).unbind(1)
        prefix = dict(zip(self.blocks, prefixes, strict=True))
        return self.backbone(images, Injection(prefix=prefix))

    def features(self, images: Tensor) -> Tensor:
        """Features (B, D) of images under the prompt in use; frozen ones before there is one."""
        if not len(self.average):
            return self.backbone(images)
        return self.prompted(images, self.average[0])

    def features_of(self, task: TaskView) -> Tensor:
        """The same of the images of a task, (N, D)."""
        return task.map(self.features) if len(self.average) else task.features()

    # Learning. -----------------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        self.cells.add(task.index, task.classes)
        self.head.grow(self.cells.classes)

    def phases(self, task: TaskView) -> list[Phase]:
        describe = Phase("statistics", work=lambda: self.describe(task))
        if not self.config.epochs:
            return [describe]
        train = self.train_phase(task)
        average = Phase("average", work=lambda: self.update_average(task))
        if self.config.drift == "none" or task.index == 0:
            return [train, average, describe]
        remember = Phase("features-before", work=lambda: self.remember(task))
        compensate = Phase("drift", work=lambda: self.compensate_drift(task))
        return [remember, train, average, compensate, describe]

    def train_phase(self, task: TaskView) -> Phase:
        """Cross-entropy of prompt and head over the classes of the task."""
        config = self.config

        def step(batch: Batch) -> Losses:
            logits = self.head(self.prompted(batch.inputs, self.prompt))
            return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

        lr = config.lr * config.batch_size / 256
        if not len(self.average):
            lr *= config.first_lr_scale
        prompt = ParamGroup([self.prompt], lr)
        head = ParamGroup(self.head.parameters(), lr * HEAD_LR_SCALE)
        # The order decides the last bit of the gradient norm, and so all later digits.
        groups = head, prompt
        return base.training_phase(config, step, *groups, clip=CLIP, seed_key="wtp")

    @torch.no_grad()
    def update_average(self, task: TaskView) -> None:
        """p̄ ← p̄ + C_t / (C_1 + … + C_t) · (p_t − p̄), where task t brings C_t classes."""
        self.averaged += len(task.classes)
        share = len(task.classes) / int(self.averaged)
        newest = self.prompt.detach()[None].clone()
        is_first = not len(self.average)
        self.average = newest if is_first else self.average + share * (newest - self.average)

    def describe(self, task: TaskView) -> None:
        """Append the Gaussians of the classes of the task."""
        self.gaussians.add(self.features_of(task), task.labels, task.classes)

    # Drift compensation. -------------------------------------------------------------------

    def remember(self, task: TaskView) -> None:
        self.before = self.features_of(task).to(self.device)

    def compensate_drift(self, task: TaskView) -> None:
        """Move the Gaussians of all old classes as the features of the new images have moved."""
        ridge = self.config.drift_ridge if self.config.drift == "affine" else torch.inf
        drift = Drift(self.before, self.features_of(task).to(self.device), ridge)
        self.gaussians.move(drift)
        self.before = self.before[:0]

    # Prediction. ---------------------------------------------------------------------------

    def discriminant(self) -> Discriminant:
        return self.gaussians.discriminant(self.config.shrinkage, self.config.ridge)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        features = plain if plain is not None and self.asks_plain else self.features(images)
        scores = self.discriminant().scores(features)
        task = self.cells.task[scores.argmax(1)]
        return Prediction(self.cells.to_classes(scores), task, features=features)

    def stored_classes(self, task: int) -> StoredClasses:
        return self.gaussians.stored_classes(self.cells, task)

    def current_features(self, images: Tensor, task: int) -> Tensor:
        return self.features(images)
