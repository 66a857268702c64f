"""Aligning a classifier of all classes with pseudo-features: what SLCA and its relatives share."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_LABEL = 1e-4  # log 0 of a label that is not the image's, in the reverse cross-entropy


def symmetric_cross_entropy(
    logits: Tensor, labels: Tensor, allowed: Tensor, forward: float, reverse: float
) -> Tensor:
    """forward · CE(label, p) + reverse · CE(p, label).

    The reverse is −Σ p_k log(label_k), in which log 0 counts as log 1e-4: that is
    −log(1e-4) (1 − p_label).

    Args:
        logits: (B, C).
        labels: (B,), all of them allowed.
        allowed: (C,) bool, outputs that take part.
    """
    log_p = logits.masked_fill(~allowed, -torch.inf).log_softmax(1)
    own = log_p.gather(1, labels[:, None])
    return -forward * own.mean() - reverse * math.log(MIN_LABEL) * (1 - own.exp()).mean()


def per_task_norm(logits: Tensor, tasks: Tensor) -> Tensor:
    """Mean over the tasks of the norm of each task's logits, (B, 1).

    Args:
        logits: (B, C).
        tasks: (C,) of the classes; any number of classes each.
    """
    own = (logits[:, tasks == task] for task in tasks.unique())
    norms = [torch.linalg.vector_norm(each, dim=1) for each in own]
    return torch.stack(norms).mean(0)[:, None] + 1e-7


def normalised_cross_entropy(
    logits: Tensor, labels: Tensor, tasks: Tensor, temperature: float
) -> Tensor:
    """Cross-entropy of logits (B, C) over `per_task_norm` and a temperature."""
    return F.cross_entropy(logits / per_task_norm(logits, tasks) / temperature, labels)


def mean_scales(tasks: Tensor, decay: float) -> Tensor:
    """Factors of class means: 1 − decay + decay · (t + 1) / T, so that old ones are the smaller.

    Args:
        tasks: (M,) t, of the cells; the newest is T − 1.
    """
    return 1 - decay + decay * (tasks + 1) / (tasks.max() + 1)


def with_smaller_means(
    features: Tensor, cells: Tensor, means: Tensor, tasks: Tensor, decay: float
) -> Tensor:
    """Pseudo-features (B, D) of cells (B,) around means (M, D) times `mean_scales`."""
    return features + (mean_scales(tasks, decay) - 1)[cells, None] * means[cells]
