"""Classifier alignment: the heads of all tasks trained together on pseudo-features.

Zhang et al., ICCV 2023 (SLCA). Old classes would lose against new ones, whose heads were trained
last; so all compete on samples of their Gaussians.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.gaussians import GaussianSampler


def shrunken_samples(
    sampler: GaussianSampler, task: Tensor, per_class: int
) -> tuple[Tensor, Tensor]:
    """Pseudo-features of all classes, those of older tasks nearer to the origin.

    Their means are taken times 0.9 + 0.1 t/T, for the t-th of T tasks.

    Args:
        sampler: of M Gaussians.
        task: (M,) 0-based, of each.
        per_class: n, samples of each.

    Returns:
        (M n, D) features, and (M n,) which Gaussian each is of.
    """
    features, cells = sampler.draw(per_class)
    factors = 0.9 + 0.1 * (task + 1) / (task.max() + 1)
    return features - ((1 - factors)[:, None] * sampler.of.means)[cells], cells


def normalised_logits(logits: Tensor, task: Tensor, temperature: float) -> Tensor:
    """Logits over the mean length of those of each task, and over a temperature.

    Args:
        logits: (B, C).
        task: (C,) of each class.
    """
    member = F.one_hot(task).to(logits)  # (C, T)
    lengths = (logits.square() @ member).clamp(min=1e-14).sqrt()
    return logits / lengths.mean(1, keepdim=True) / temperature


def shuffled_batches(features: Tensor, labels: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Rows (N, D) and their labels (N,) in random order, some at a time."""
    order = torch.randperm(len(labels), device=labels.device)
    return [(features[rows], labels[rows]) for rows in order.split(size)]
