"""OVOR: one prompt for all tasks, and a head that is taught what does not belong to a task.

Huang et al., ICLR 2024. The first stage trains prompt and head; the second one the head alone, on
features of the task and on virtual outliers around them.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Phase, TaskView, blocks_of, learning_rate_factor
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.ovor.config import OvorConfig
from hashprompt.methods.ovor.outliers import energy, energy_loss, virtual_outliers
from hashprompt.parts.heads import masked_cross_entropy

OUTLIER = -1  # the label of virtual outliers


class Ovor(PromptTuning):
    """One prompt, trained on every task; no query, so one pass per image."""

    # Outliers stand for the classes of other tasks; other domains have the same classes.
    needs_query = False
    config: OvorConfig

    def __init__(self, config: OvorConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        # Keys and values of all blocks, one block's after the other's.
        self.prompts = nn.Parameter(torch.rand(2, sum(config.prompt_lengths), backbone.dim))

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        parts = self.prompts.split(self.config.prompt_lengths, dim=1)
        each = (part.expand(len(tokens), -1, -1, -1) for part in parts)
        return PromptOutput(Injection(prefix=dict(zip(self.blocks, each, strict=True))), {})

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts]

    def phases(self, task: TaskView) -> list[Phase]:
        config, (train,) = self.config, super().phases(task)
        if not config.outliers:
            return [train]
        epochs = config.epochs + config.outlier_epochs

        def decay(done: int) -> Callable[[float, float], float]:
            return lambda epoch, _: learning_rate_factor(config.schedule, done + epoch, epochs)

        outliers = Phase(
            "outliers",
            step=lambda batch: self._outlier_step(batch, task),
            groups=train.groups[1:],  # the head
            epochs=config.outlier_epochs,
            draw=lambda: self._draw(task),
            optimizer=config.optimizer,
            schedule=decay(config.epochs),
            clip=config.clip,
        )
        return [replace(train, schedule=decay(0)), outliers]

    def _draw(self, task: TaskView) -> list[Batch]:
        """The task's features under fresh augmentation, each batch with its share of outliers."""
        config = self.config
        features = task.map(self.features_of, view="train")
        outliers = virtual_outliers(
            features,
            count=config.outliers_per_class * len(task.classes),
            neighbours=config.neighbours,
            boundary=config.boundary,
            draws=config.noise_draws,
            noise=config.noise,
            literal=config.ovor_literal,
        )
        batches = torch.randperm(len(features), device=features.device).split(config.batch_size)
        share = max(1, len(outliers) // len(batches))
        # With more batches than outliers they come round again.
        rows = torch.arange(len(batches) * share, device=features.device) % len(outliers)
        nothing = task.labels.new_full((share,), OUTLIER)
        return [
            Batch(torch.cat((features[own], outliers[far])), torch.cat((task.labels[own], nothing)))
            for own, far in zip(batches, rows.split(share), strict=True)
        ]

    def _outlier_step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        """Cross-entropy of the features + λ · energy losses, over the task's own classes."""
        config, allowed = self.config, self.allowed(task)
        logits, inside = self.head(batch.inputs), batch.labels != OUTLIER
        energies = energy(logits[:, allowed])
        apart = energy_loss(
            energies[inside],
            energies[~inside],
            low=config.energy_inside,
            high=config.energy_outside,
        )
        return {
            "ce": masked_cross_entropy(logits[inside], batch.labels[inside], allowed),
            "energy": config.outlier_weight * apart,
        }
