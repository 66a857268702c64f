"""OVOR: one prompt for all tasks, and a head that is taught what does not belong to a task.

Huang et al., ICLR 2024. The first stage trains prompt and head; the second one only the head, on
features of the task and on virtual outliers around them.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Phase, TaskView, blocks_of, learning_rate_factor
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.ovor.config import OvorConfig
from hashprompt.parts.budget import check_room
from hashprompt.parts.heads import masked_cross_entropy

CHUNK = 4096  # points compared at once, so that memory does not grow with their number
OUTLIER = -1  # the label of virtual outliers


class Ovor(PromptTuning[OvorConfig]):
    """One prompt, trained on every task; no query, so one pass per image."""

    # Outliers stand for the classes of other tasks; other domains have the same classes.
    needs_query = False

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

        outliers = replace(
            train,
            name="outliers",
            seed_key="outliers",
            step=lambda batch: self._outlier_step(batch, task),
            groups=train.groups[1:],  # the head
            epochs=config.outlier_epochs,
            draw=lambda: self._draw(task),
            schedule=decay(config.epochs),
        )
        return [replace(train, schedule=decay(0)), outliers]

    def _draw(self, task: TaskView) -> list[Batch]:
        """The task's features under fresh augmentation, each batch with its share of outliers."""
        config = self.config
        features = task.map(self.features_of, view="train")
        count = config.outliers_per_class * len(task.classes)
        outliers = virtual_outliers(features, count, config)
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
        bounds = config.energy_inside, config.energy_outside
        apart = energy_loss(energies[inside], energies[~inside], *bounds)
        return {
            "ce": masked_cross_entropy(logits[inside], batch.labels[inside], allowed),
            "energy": config.outlier_weight * apart,
        }


# Virtual outliers: features just outside those of a task, and their losses.


def kth_distance(points: Tensor, among: Tensor, k: int) -> Tensor:
    """Distance (n,) of points (n, D) to the k-th nearest of `among` (m, D), itself included."""
    near = [torch.cdist(some, among).topk(k, largest=False).values for some in points.split(CHUNK)]
    return torch.cat(near)[:, -1]


def virtual_outliers(features: Tensor, count: int, config: OvorConfig) -> Tensor:
    """NPOS: noise around the loneliest features; the points farthest from all features are used.

    Lonely and far mean a large distance to the k-th nearest feature, between unit vectors.

    Args:
        features: (n, D) of a task.
        count: outliers wanted.
        config: `neighbours` and `boundary` are not more than there are features; the noise
            vectors are the same around each boundary feature. The public code leaves out the
            boundary features.

    Returns:
        (min(count, boundary · noise_draws), D), the farthest first.
    """
    unit = F.normalize(features, dim=1)
    neighbours, boundary = min(config.neighbours, len(unit)), min(config.boundary, len(unit))
    size = config.noise_draws, unit.shape[1]
    check_room(3 * boundary * math.prod(size), f"{size[0]:,} draws around {boundary:,} features")
    offsets = config.noise * torch.randn(size, device=unit.device, dtype=unit.dtype)
    lonely = kth_distance(unit, unit, neighbours).topk(boundary).indices
    candidates = (features[lonely][:, None] + offsets).flatten(0, 1)
    distance = kth_distance(F.normalize(candidates, dim=1), unit, neighbours)
    return candidates[distance.topk(min(count, len(candidates))).indices]


def energy(logits: Tensor) -> Tensor:
    """E = −log Σ exp of logits (n, C): low for what the classifier knows, (n,)."""
    return -logits.logsumexp(1)


def energy_loss(inside: Tensor, outside: Tensor, low: float, high: float) -> Tensor:
    """Huber(relu(E_in − low)) + Huber(relu(high − E_out)), each a mean.

    Args:
        inside: (n,) energies of features, wanted below `low`.
        outside: (m,) energies of outliers, wanted above `high`.
    """
    off = F.relu(inside - low), F.relu(high - outside)
    excess, lack = (F.huber_loss(each, torch.zeros_like(each)) for each in off)
    return excess + lack
