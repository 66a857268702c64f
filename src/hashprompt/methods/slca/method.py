"""SLCA: slow learning of the whole ViT, and a classifier aligned with Gaussians of old classes.

Zhang et al., ICCV 2023. The Gaussians never move: the ViT learns so slowly that they hardly need
to. Means of older classes are made a little smaller instead.
"""

from dataclasses import replace

from torch import Tensor

from hashprompt.methods.base import Phase, TaskView, learning_rate_factor
from hashprompt.methods.frames.classifier_alignment import AlignedTuning, with_smaller_means
from hashprompt.methods.slca.config import SLCAConfig


class SLCA(AlignedTuning[SLCAConfig]):
    """Slow learner with classifier alignment."""

    keeps = (*AlignedTuning.keeps, "gaussians.")

    def phases(self, task: TaskView) -> list[Phase]:
        train, *rest = super().phases(task)
        return [replace(train, schedule=self.rate), *rest]

    def rate(self, epoch: float, epochs: float) -> float:
        """The rate of an epoch over the initial one."""
        late = 0.1 if epoch >= self.config.decay_at * epochs else 1.0
        return late * learning_rate_factor(self.config.schedule, epoch, epochs)

    def shaped(self, features: Tensor, cells: Tensor) -> Tensor:
        """Pseudo-features (B, D) around smaller means; their spread stays."""
        means, decay = self.gaussians.means, self.config.mean_decay
        return with_smaller_means(features, cells, means, self.cells.task, decay)
